package unit

import (
	"fmt"
	"slices"

	"aether.io/aether/internal/envoy/footprint"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/ledger"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/table"
)

// newRoom shares what a namespace may take of each shared proxy's memory among its routes,
// whosever Gateways they attach to: by Gateway, who attaches to somebody else's could take all of
// it, and who has many Gateways could take it many times. The older go first.
func newRoom(c Config) *sheet.Ledger[string, key.Name, item] {
	return sheet.NewLedger[string](c.SharedMemory, func(i item) int64 { return i.size }, key.Name.Compare)
}

// item is a cluster, which all routes of a namespace have together, and what it takes.
type item struct {
	of   key.Service
	size int64
}

// ask asks for what a route would take of the shared pool: its matches in each of its hosts,
// and its clusters, which the routes of a namespace have together.
func (u *Units) ask(c *sheet.Cell, n key.Name, r route) {
	if u.config.SharedMemory == 0 {
		return
	}
	bid := ledger.Bid[item]{Age: r.Created}
	hosts, clusters := map[key.Host]struct{}{}, map[key.Service]struct{}{}
	for _, p := range r.Parents {
		if !p.shared() || len(p.Hosts) == 0 {
			continue
		}
		size := int64(footprint.Host)
		for _, m := range p.Rules.Matches {
			size += m.Footprint
		}
		for _, h := range p.Hosts {
			if _, twice := hosts[h]; !twice {
				hosts[h] = struct{}{}
				bid.Own += size
			}
		}
		for _, b := range p.Rules.Backends {
			clusters[b] = struct{}{}
		}
	}
	if len(hosts) > 0 {
		for _, s := range key.Sorted(clusters, key.Service.Compare) {
			bid.Items = append(bid.Items, item{s, u.clusters.Footprint(c, s)})
		}
		u.room.Put(c, n.Namespace, n, bid)
	}
}

// computeAdmitted is a route without the parents in the shared pool if there is no room for it.
// It hands the route's matches to its hosts, and asks for its clusters.
func (u *Units) computeAdmitted(c *sheet.Cell, n key.Name) route {
	out := u.route.Get(c, n)
	own := false // out.Parents is not the computed route's
	for i := range out.Parents {
		// One of which no rule is supported has its matches answered too.
		if p := out.Parents[i]; p.shared() && len(p.Hosts) > 0 {
			if why := u.lacksRoom(c, n); !why.IsZero() {
				p.Hosts = nil
				if p.Rejected.IsZero() {
					p.Rejected = why
				}
				if !own {
					out.Parents, own = slices.Clone(out.Parents), true
				}
				out.Parents[i] = p
			}
		}
		p := &out.Parents[i]
		if p.Rejected.IsZero() {
			for _, s := range p.Sections {
				u.attached.Put(c, key.Section{Parent: p.to, Section: s}, n, none{})
			}
			for _, s := range p.uses {
				u.uses.Put(c, s, n, none{})
			}
		}
		u.serve(c, n, *p)
	}
	return out
}

// lacksRoom is why a route cannot be served by shared proxies. The sum of its namespace is not
// in it, or each change of a route would change the status of all that are left out.
func (u *Units) lacksRoom(c *sheet.Cell, n key.Name) condition.Problem {
	if u.config.SharedMemory == 0 {
		return condition.Problem{}
	}
	has, alone := u.room.Get(c, n.Namespace, n)
	if has {
		return condition.Problem{}
	}
	why := "with the older routes of namespace " + n.Namespace + " that is more"
	if alone > u.config.SharedMemory {
		why = "that is more"
	}
	return condition.Problemf(report.ReasonTooMuch, "it would take about %s of the memory of each shared proxy, and %s than the %s that the routes of one namespace may take: "+
		"give it fewer hostnames, matches, regular expressions, backends or authorities of backends, delete routes of the namespace that are not needed, or attach it to a Gateway with proxies of its own",
		amount(alone), why, amount(u.config.SharedMemory))
}

// amount is a number of bytes as people read it.
func amount(n int64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%dKi", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%.1fMi", float64(n)/(1<<20))
}

func (u *Units) serve(c *sheet.Cell, n key.Name, p routeParent) {
	for _, h := range p.Hosts {
		u.tables.Routes.Put(c, h, n, table.Contribution{Matches: p.Rules.Matches, Origin: n.Object(object.HTTPRoute)})
	}
	if len(p.Hosts) > 0 {
		for _, b := range p.Rules.Backends {
			for _, s := range p.Scopes {
				u.backends.Put(c, key.Placed[key.Service]{Scope: s, Of: b}, n, none{})
			}
		}
	}
}
