package v1

import (
	_ "aether.io/aether/internal/object"
)
