package pipeline

import "aether.io/aether/internal/object"

// Used is which of the objects something that proxies are given is made from. It looks at
// every resource.
func (p *Pipeline) Used(of []object.Key) map[object.Key]bool {
	asked := make(map[object.Key]bool, len(of))
	for _, k := range of {
		asked[k] = true
	}
	used := map[object.Key]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resources := range p.current {
		for _, r := range resources {
			for _, k := range r.Origin {
				if asked[k] {
					used[k] = true
				}
			}
		}
	}
	return used
}
