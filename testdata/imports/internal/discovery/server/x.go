package server

import (
	_ "aether.io/aether/internal/discovery"
	_ "aether.io/aether/internal/world"
)
