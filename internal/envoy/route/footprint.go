package route

import "aether.io/aether/internal/envoy/footprint"

// Footprint is about how many bytes of an Envoy's memory the routes take that serve r in one
// virtual host, whichever takes most. r must be valid.
func (r Route) Footprint() int64 {
	list, err := r.Encode(Host{Name: anything})
	if err != nil { // it is not served
		return 0
	}
	var n int64
	for _, m := range list {
		n += footprint.Route(m)
	}
	return n
}
