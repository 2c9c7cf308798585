package fleet

import (
	"time"

	"aether.io/aether/internal/resource"
)

// Standing is how far the connected proxies of a scope have come with a change.
type Standing struct {
	Connected int             // proxies
	Reached   int             // of those, how many have answered for everything up to the change, with nothing pending
	Running   int             // of those that have reached it, how many run the present content of what was asked about
	Refused   []resource.Name // of what was asked about, what some proxy refuses in its present content; sorted
	Differed  int             // resources by which the world differed most from what a proxy held when it connected
	At        time.Time       // when the newest answer came of those that were looked at; zero: there was none
}
