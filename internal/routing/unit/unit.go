// Package unit is the formulas of the routing graph: from each kind of object to what
// proxies are to serve and what is to be said of it. It gathers what a unit needs, has
// the pure packages beside it decide, and hands the outcome to the units that depend on
// it. It knows nothing of where objects come from or what becomes of the outcome.
// The parts that stand by themselves have formulas of their own: entry, credential,
// cluster, table and layer.
//
//	class ─► gateway ─► parent ─► offer ─► route ─► admitted ─► host ─► table ─► star, hostScope ─► world
//	  set ─────┘│         │                  └─► cluster ────────────────────────────► world
//	            │         │                        └─► trust ────────────────────────► world
//	          owner    listener ─► bound, secret, layer ─────────────────────────────► world
//
// Values enter by Set and Delete; Settle computes, Drain hands out.
package unit

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/cluster"
	"aether.io/aether/internal/routing/credential"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/layer"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/table"
)

// Config is what the units must know beside the objects. Every field but the paths is
// needed.
type Config struct {
	ControllerName   string
	ReleaseNamespace string
	Address          string // IP that listeners bind
	AccessLogPath    string // empty: no logger
	TrustFile        string // the system's authorities beside each proxy; empty: none
	Site             gateway.Site
	Fronts           bool // each shared Gateway has a site of its own, as the Service in front of it says
	Pooled           bool // no Gateway can have proxies of its own, nor a Service in front
	System           meshconfig.System
	Collector        layer.Collector
	// SharedMemory is the bytes that the routes of one namespace may take of each shared
	// proxy, by estimate; 0: any.
	SharedMemory int64
}

// Resource is a resource's place.
type Resource = key.Placed[resource.Name]

// Units is every unit there is. It has one user at a time.
type Units struct {
	config Config
	sheet  sheet.Sheet

	entries     *entry.Entries
	credentials *credential.Credentials
	clusters    *cluster.Clusters
	tables      *table.Tables
	layers      *layer.Layers

	// What passes from many units to one. Members that stand for themselves are empty.
	claims   sheet.Group[claim, key.Name, int64]                     // who wants it, and its age
	sets     sheet.Group[key.Name, key.Name, *gatewayv1.ListenerSet] // by the Gateway that they name
	ports    sheet.Group[key.Port, string, none]                     // its sections
	patterns sheet.Group[pattern, string, none]                      // the section that has it
	joined   sheet.Group[key.Name, key.Name, none]                   // by Gateway: its ListenerSets that are accepted
	secrets  sheet.Group[key.Placed[key.Name], string, none]         // the tables that use it
	attached sheet.Group[key.Section, key.Name, none]                // its routes
	backends sheet.Group[key.Placed[key.Service], key.Name, none]    // the routes that use it
	uses     sheet.Group[use, key.Name, none]                        // the routes that make it
	users    sheet.Group[key.Name, use, none]                        // by Service
	unlisted sheet.Group[key.Name, key.Name, none]                   // by Gateway: the policies whose status has no room for it
	trusts   sheet.Group[key.Placed[key.Name], string, none]         // by policy: the clusters that need it

	room *sheet.Ledger[string, key.Name, item] // of the shared pool, by the namespace of routes

	class    *sheet.Formula[key.Name, class]
	gateway  *sheet.Formula[key.Name, ownGateway]
	born     *sheet.Formula[key.Name, int64]
	set      *sheet.Formula[key.Name, key.Name]
	owner    *sheet.Formula[claim, key.Name]
	parent   *sheet.Formula[key.Name, parent]
	offer    *sheet.Formula[key.Parent, offer]
	listener *sheet.Formula[key.Port, listener]
	route    *sheet.Formula[key.Name, route]
	admitted *sheet.Formula[key.Name, route]
	bound    *sheet.Formula[key.Port, []resource.Name]

	world    sheet.Output[Resource, *resource.Resource]
	statuses sheet.Output[object.Key, report.Status]
	fronts   sheet.Output[key.Name, front.Front]
}

type none = struct{}

// New wires the units of no objects.
func New(c Config) *Units {
	u := &Units{config: c}
	u.makeFormulas()
	return u
}

// makeFormulas makes the formulas in the order in which they may read each other, and
// says which of them a group keeps computed.
func (u *Units) makeFormulas() {
	s := &u.sheet
	u.entries = entry.New(s)
	u.class = sheet.NewFormula(s, u.computeClass)
	u.born = sheet.NewFormula(s, u.computeBorn)
	u.set = sheet.NewFormula(s, u.computeSet)
	u.gateway = sheet.NewFormula(s, u.computeGateway)
	u.owner = sheet.NewFormula(s, u.computeOwner)
	u.parent = sheet.NewFormula(s, u.computeParent)
	u.offer = sheet.NewFormula(s, u.computeOffer)
	u.credentials = credential.New(s, u.entries, u.validation)
	u.listener = sheet.NewFormula(s, u.computeListener)
	u.clusters = cluster.New(s, u.entries, u.credentials, u.config.TrustFile)
	u.route = sheet.NewFormula(s, u.computeRoute)
	u.room = newRoom(u.config)
	u.admitted = sheet.NewFormula(s, u.computeAdmitted)
	u.tables = table.New(s, u.reach, u.putOne)
	u.bound = sheet.NewFormula(s, u.computeBound)
	u.layers = layer.New(s, layer.Config{
		ReleaseNamespace: u.config.ReleaseNamespace, System: u.config.System, Collector: u.config.Collector,
	}, u.entries, u.putOne)

	u.ports.Want(u.bound)
	u.uses.Want(sheet.NewFormula(s, u.computeUse))
	u.backends.Want(sheet.NewFormula(s, u.shipCluster))
	u.secrets.Want(sheet.NewFormula(s, u.shipSecret))
	u.trusts.Want(sheet.NewFormula(s, u.shipTrust))

	reportPolicy := sheet.NewFormula(s, u.reportPolicy) // before Gateways, which say what it cannot
	reportSet := sheet.NewFormula(s, u.reportSet)       // before Gateways, which count them
	u.entries.Root(object.GatewayClass, sheet.NewFormula(s, u.reportClass))
	u.entries.Root(object.Gateway, u.parent, sheet.NewFormula(s, u.askFront), sheet.NewFormula(s, u.reportGateway))
	u.entries.Root(object.ListenerSet, u.set, reportSet)
	u.entries.Root(object.HTTPRoute, u.admitted, sheet.NewFormula(s, u.reportRoute))
	u.entries.Root(object.BackendTLSPolicy, reportPolicy)
	u.entries.Root(object.MeshConfig, sheet.NewFormula(s, u.reportMeshConfig))
}

// Settle computes everything that the objects set since the last Settle reach.
func (u *Units) Settle() { u.sheet.Settle() }

// Runs is the number of units computed so far.
func (u *Units) Runs() int { return u.sheet.Runs() }

// Changes is what came out differently, in no order.
type Changes struct {
	Resources []sheet.Change[Resource, *resource.Resource]
	Statuses  []sheet.Change[object.Key, report.Status]
	Fronts    []sheet.Change[key.Name, front.Front]
}

// Drain hands out what has changed since the last Drain.
func (u *Units) Drain() Changes {
	return Changes{Resources: u.world.Drain(), Statuses: u.statuses.Drain(), Fronts: u.fronts.Drain()}
}
