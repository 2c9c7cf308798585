package ca

import (
	_ "aether.io/aether/internal/ca/store"
)
