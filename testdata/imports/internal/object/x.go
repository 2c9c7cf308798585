package object

import (
	_ "fmt"
	_ "time"
)
