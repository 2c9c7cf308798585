package journal

import (
	_ "aether.io/aether/cmd/aetherctl"
	_ "aether.io/aether/internal/ca"
	_ "aether.io/aether/internal/test/rig"
	_ "log/slog"
	_ "os"
)
