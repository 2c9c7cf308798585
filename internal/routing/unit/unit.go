// Package unit is the formulas of the routing graph: from each kind of object to what
// proxies are to serve and what is to be said of it. It gathers what a unit needs, has
// the pure packages beside it decide, and hands the outcome to the units that depend on
// it. It knows nothing of where objects come from or what becomes of the outcome.
//
//	class ─► gateway ─► parent ─► offer ─► route ─► host ─► table ─► star, hostScope ─► world
//	  set ─────┘│         │                  └─► cluster ────────────────────────────► world
//	            │         │                        └─► trust ────────────────────────► world
//	          owner    listener ─► bound, secret, runtime ───────────────────────────► world
//
// Values enter by Set and Delete; Settle computes, Drain hands out.
package unit

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/certificate"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/policy"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/table"
	"aether.io/aether/internal/routing/trust"
	"aether.io/aether/internal/scope"
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
	System           meshconfig.System
}

// Resource is a resource's place.
type Resource = key.Placed[resource.Name]

// Units is every unit there is. It has one user at a time.
type Units struct {
	config Config
	sheet  sheet.Sheet

	objects sheet.Input[object.Key, Entry]
	rooted  map[object.Key]struct{}
	roots   map[object.Kind][]root // what is computed for as long as an object exists

	// What passes from many units to one. Members that stand for themselves are empty.
	slices   sheet.Group[key.Name, string, *discoveryv1.EndpointSlice] // by Service
	grants   sheet.Group[string, string, *gatewayv1.ReferenceGrant]    // by namespace
	claims   sheet.Group[claim, key.Name, int64]                       // who wants it, and its age
	sets     sheet.Group[key.Name, key.Name, *gatewayv1.ListenerSet]   // by the Gateway that they name
	ports    sheet.Group[key.Port, string, none]                       // its sections
	patterns sheet.Group[pattern, string, none]                        // the section that has it
	joined   sheet.Group[key.Name, key.Name, none]                     // by Gateway: its ListenerSets that are accepted
	gateways sheet.Group[string, key.Name, scope.Scope]                // served, by namespace; "": all
	scopes   sheet.Group[scope.Scope, key.Name, none]                  // its Gateways
	secrets  sheet.Group[key.Placed[key.Name], string, none]           // the tables that use it
	logged   sheet.Group[scope.Scope, key.Table, none]                 // its tables
	limits   sheet.Group[scope.Scope, key.Port, uint32]                // the connections that its listeners hold
	attached sheet.Group[key.Section, key.Name, none]                  // its routes
	backends sheet.Group[key.Placed[key.Service], key.Name, none]      // the routes that use it
	policies sheet.Group[policy.Target, key.Name, int64]               // who wants it, and its age
	uses     sheet.Group[use, key.Name, none]                          // the routes that make it
	users    sheet.Group[key.Name, use, none]                          // by Service
	unlisted sheet.Group[key.Name, key.Name, none]                     // by Gateway: the policies whose status has no room for it
	trusts   sheet.Group[key.Placed[key.Name], string, none]           // by policy: the clusters that need it

	effective *sheet.Formula[string, effective]
	class     *sheet.Formula[key.Name, class]
	gateway   *sheet.Formula[key.Name, ownGateway]
	born      *sheet.Formula[key.Name, int64]
	set       *sheet.Formula[key.Name, key.Name]
	owner     *sheet.Formula[claim, key.Name]
	parent    *sheet.Formula[key.Name, parent]
	offer     *sheet.Formula[key.Parent, offer]
	secret    *sheet.Formula[key.Name, certificate.Certificate]
	clients   *sheet.Formula[key.Port, clients]
	listener  *sheet.Formula[key.Port, listener]
	identity  *sheet.Formula[key.Name, identity]
	bundle    *sheet.Formula[object.Key, trust.Bundle]
	policy    *sheet.Formula[key.Name, policy.Policy]
	secured   *sheet.Formula[policy.Target, key.Name]
	target    *sheet.Formula[policy.Target, policy.Attachment]
	port      *sheet.Formula[key.Service, backend.Port]
	backend   *sheet.Formula[key.Service, backend.Port]
	route     *sheet.Formula[key.Name, route]
	cluster   *sheet.Formula[key.Service, cluster]
	bound     *sheet.Formula[key.Port, []resource.Name]
	runtime   *sheet.Formula[scope.Scope, []resource.Name]
	tables    *table.Tables

	world    sheet.Output[Resource, *resource.Resource]
	statuses sheet.Output[object.Key, report.Status]
	fronts   sheet.Output[key.Name, front.Front]
}

type none = struct{}

// root is a formula by name, of any value.
type root interface {
	Pin(key.Name)
	Unpin(key.Name)
}

// New wires the units of no objects.
func New(c Config) *Units {
	u := &Units{
		config: c,
		rooted: map[object.Key]struct{}{},
	}
	u.makeFormulas()
	u.runtime.Pin(scope.SharedPool()) // a world that always exists
	return u
}

// makeFormulas makes the formulas in the order in which they may read each other, and
// says which of them a group keeps computed.
func (u *Units) makeFormulas() {
	s := &u.sheet
	slice := sheet.NewFormula(s, u.computeSlice)
	grant := sheet.NewFormula(s, u.computeGrant)
	u.effective = sheet.NewFormula(s, u.computeEffective)
	u.class = sheet.NewFormula(s, u.computeClass)
	u.born = sheet.NewFormula(s, u.computeBorn)
	u.set = sheet.NewFormula(s, u.computeSet)
	u.gateway = sheet.NewFormula(s, u.computeGateway)
	u.owner = sheet.NewFormula(s, u.computeOwner)
	u.parent = sheet.NewFormula(s, u.computeParent)
	u.offer = sheet.NewFormula(s, u.computeOffer)
	u.secret = sheet.NewFormula(s, u.computeSecret)
	u.bundle = sheet.NewFormula(s, u.computeBundle)
	u.clients = sheet.NewFormula(s, u.computeClients)
	u.listener = sheet.NewFormula(s, u.computeListener)
	u.identity = sheet.NewFormula(s, u.computeIdentity)
	u.policy = sheet.NewFormula(s, u.computePolicy)
	u.secured = sheet.NewFormula(s, u.computeSecured)
	u.target = sheet.NewFormula(s, u.computeTarget)
	u.port = sheet.NewFormula(s, u.computePort)
	u.backend = sheet.NewFormula(s, u.computeBackend)
	u.route = sheet.NewFormula(s, u.computeRoute)
	u.cluster = sheet.NewFormula(s, u.computeCluster)
	u.tables = table.New(s, u.reach, u.putScope)
	u.bound = sheet.NewFormula(s, u.computeBound)
	u.runtime = sheet.NewFormula(s, u.computeRuntime)

	u.ports.Want(u.bound)
	u.scopes.Want(u.runtime)
	u.uses.Want(sheet.NewFormula(s, u.computeUse))
	u.backends.Want(sheet.NewFormula(s, u.shipCluster))
	u.secrets.Want(sheet.NewFormula(s, u.shipSecret))
	u.trusts.Want(sheet.NewFormula(s, u.shipTrust))

	reportPolicy := sheet.NewFormula(s, u.reportPolicy) // before Gateways, which say what it cannot
	reportSet := sheet.NewFormula(s, u.reportSet)       // before Gateways, which count them
	u.roots = map[object.Kind][]root{
		object.EndpointSlice:    {slice},
		object.ReferenceGrant:   {grant},
		object.GatewayClass:     {sheet.NewFormula(s, u.reportClass)},
		object.Gateway:          {u.parent, sheet.NewFormula(s, u.askFront), sheet.NewFormula(s, u.reportGateway)},
		object.ListenerSet:      {u.set, reportSet},
		object.HTTPRoute:        {u.route, sheet.NewFormula(s, u.reportRoute)},
		object.BackendTLSPolicy: {u.policy, reportPolicy},
		object.MeshConfig:       {sheet.NewFormula(s, u.reportMeshConfig)},
	}
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
