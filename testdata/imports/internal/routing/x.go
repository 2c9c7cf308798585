package routing

import (
	_ "aether.io/aether/api/config/v1"
	_ "aether.io/aether/internal/journal"
	_ "aether.io/aether/internal/object"
	_ "aether.io/aether/internal/routing/sheet"
	_ "k8s.io/client-go/kubernetes"
	_ "log/slog"
	_ "os/exec"
)
