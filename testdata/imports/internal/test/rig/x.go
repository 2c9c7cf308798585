package rig

import (
	_ "aether.io/aether/internal/ca"
	_ "aether.io/aether/internal/world"
)
