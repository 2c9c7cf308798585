package unit

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/gateway"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/table"
	"aether.io/aether/internal/scope"
)

// listener is one port of one Gateway: where it is bound, the tables that are reached
// through it, and why those of other sections are not. How tables are cut into scopes is
// not in it.
type listener struct {
	Places   []socket                     // the one that counts is first
	Rejected map[string]condition.Problem // by section: it cannot be had
	Refs     map[string]condition.Problem // by section: its references are not good
	Chains   []chain                      // in the order of their sections
	Origin   []object.Key                 // the Gateway, and what else its sections are of
}

// socket is a port that is bound in one world.
type socket struct {
	Scope scope.Scope
	Port  uint32
}

// bound reports whether it is known where the listener is bound.
func (l listener) bound() bool { return len(l.Places) > 0 }

func (l listener) scopes() []scope.Scope {
	var list []scope.Scope
	for _, at := range l.Places {
		list = append(list, at.Scope)
	}
	return list
}

// chain is a table and how it is reached.
type chain struct {
	Table   key.Table
	SNI     []string
	Secrets []key.Name
	Clients envoy.ClientCertificates
}

func (l listener) reaches(t key.Table) bool {
	return slices.ContainsFunc(l.Chains, func(ch chain) bool { return ch.Table == t })
}

// computeListener also asks for the certificates and the runtime keys that its chains need.
func (u *Units) computeListener(c *sheet.Cell, k key.Port) listener {
	gw, as := u.gateway.Get(c, k.Gateway), u.parent.Get(c, k.Gateway)
	l := listener{
		Rejected: map[string]condition.Problem{}, Refs: map[string]condition.Problem{},
		Origin: []object.Key{k.Gateway.Object(object.Gateway)},
	}
	if !as.Served {
		return l
	}
	var taken socketTaken
	if l.Places, taken = u.sockets(c, k, gw, as.Scopes); !l.bound() && taken == (socketTaken{}) {
		return l
	}
	for _, s := range as.Sections {
		if !s.Accepted() || s.Table.Port != k {
			continue
		}
		l.Origin = append(l.Origin, s.Parent().Object(s.Parent().Kind))
		next := chain{Table: s.Table}
		if s.Secure {
			u.secure(c, s, &next, l, gw)
			if _, bad := l.Rejected[s.ID()]; bad {
				continue
			}
		}
		if !l.bound() {
			l.Rejected[s.ID()] = taken.from(s)
		} else if why := u.refuse(s, l, next, gw); !why.IsZero() {
			l.Rejected[s.ID()] = why
		} else if (!s.Secure || len(next.Secrets) > 0) && !l.reaches(s.Table) { // HTTP sections share a table
			l.Chains = append(l.Chains, next)
		}
	}
	slices.SortFunc(l.Origin, object.Key.Compare)
	l.Origin = slices.Compact(l.Origin)
	for _, in := range l.scopes() {
		if n := gw.Clients.Connections; n > 0 && len(l.Chains) > 0 {
			u.layers.Limits.Put(c, in, k, n)
		}
		for _, ch := range l.Chains {
			u.layers.Tables.Put(c, in, ch.Table, none{})
			for _, s := range ch.Secrets {
				u.secrets.Put(c, key.Placed[key.Name]{Scope: in, Of: s}, ch.Table.Name, none{})
			}
		}
	}
	return l
}

// socketTaken is a port of the shared pool that another Gateway has.
type socketTaken struct {
	Port uint32
	By   key.Name
}

// from says that a section cannot have it. Who has attached a ListenerSet may not be
// allowed to see whose it is.
func (t socketTaken) from(s gateway.Section) condition.Problem {
	by := "Gateway " + t.By.String()
	if s.Set != (key.Name{}) {
		by = "another Gateway"
	}
	return condition.Problemf(gatewayv1.ListenerReasonPortUnavailable, "port %d is bound by %s, which had it first", t.Port, by)
}

// sockets is where a port of a Gateway is bound in some worlds, and where it cannot be.
func (u *Units) sockets(c *sheet.Cell, k key.Port, gw ownGateway, in []scope.Scope) (list []socket, taken socketTaken) {
	for _, at := range gw.Places {
		port := at.Bound[k.Port]
		if port == 0 || !slices.Contains(in, at.Scope) {
			continue
		}
		if at.Scope.IsSharedPool() {
			if owner := u.owner.Get(c, claim{port: port}); owner != k.Gateway {
				taken = socketTaken{port, owner}
				continue
			}
		}
		list = append(list, socket{at.Scope, port})
	}
	return list, taken
}

// secure finds what an HTTPS section's chain needs, and notes in l what it does not find.
func (u *Units) secure(c *sheet.Cell, s gateway.Section, next *chain, l listener, gw ownGateway) {
	var bad condition.Problem
	next.Secrets, bad = u.credentials.Certificates(c, s.Parent(), gw.Certificates[s.ID()])
	if s.Host != hostname.Any {
		next.SNI = []string{s.Host}
	}
	verified := u.credentials.Clients(c, s.Table.Port)
	if bad = bad.And(verified.Refs); !bad.IsZero() {
		l.Refs[s.ID()] = bad
	}
	if !verified.Rejected.IsZero() {
		l.Rejected[s.ID()] = verified.Rejected
	}
	if verified.Wanted {
		next.Clients = envoy.ClientCertificates{Trust: verified.Name, Optional: verified.Optional}
	}
}

// refuse says why Envoy would not take a chain.
func (u *Units) refuse(s gateway.Section, l listener, ch chain, gw ownGateway) condition.Problem {
	if len(ch.Secrets) == 0 {
		ch.SNI, ch.Clients = nil, envoy.ClientCertificates{} // without certificates there is nothing to check of TLS
	}
	if err := u.model(s.Table.Port, l, l.Places[0].Port, []envoy.Chain{u.chain(ch, gw)}, gw).Validate(); err != nil {
		return condition.Problemf(gatewayv1.ListenerReasonUnsupportedValue, "%v", err)
	}
	return condition.Problem{}
}

// chain is Envoy's model of a chain, but for how its table is cut.
func (u *Units) chain(ch chain, gw ownGateway) envoy.Chain {
	m := envoy.Chain{
		Name: ch.Table.Name, SNI: ch.SNI, AccessLog: u.config.AccessLogPath, Collector: !u.config.Collector.IsZero(), Port: ch.Table.Port.Port,
		TrustedHops: gw.Clients.TrustedHops, Clients: ch.Clients, MinTLS13: gw.Clients.MinTLS13 && len(ch.Secrets) > 0,
	}
	for _, s := range ch.Secrets {
		m.Secrets = append(m.Secrets, s.String())
	}
	return m
}

func (u *Units) model(k key.Port, l listener, port uint32, chains []envoy.Chain, gw ownGateway) envoy.Listener {
	return envoy.Listener{
		Name: k.String(), Address: u.config.Address, Port: port, Chains: chains, Proxied: gw.Clients.Proxied,
		Origin: l.Origin,
	}
}

// validation is how the clients of a port are to be verified; nil: not at all.
func (u *Units) validation(c *sheet.Cell, k key.Port) *gatewayv1.FrontendTLSValidation {
	return u.gateway.Get(c, k.Gateway).Validation(k.Port)
}

// reach is whether and where a table is reached.
func (u *Units) reach(c *sheet.Cell, k key.Table) table.Reach {
	l := u.listener.Get(c, k.Port)
	return table.Reach{Live: l.reaches(k), Scopes: l.scopes(), RouteScopes: u.parent.Get(c, k.Gateway).RouteScopes}
}

// computeBound makes the listener that Envoy binds, if any table is reached through it.
func (u *Units) computeBound(c *sheet.Cell, k key.Port) []resource.Name {
	l, gw := u.listener.Get(c, k), u.gateway.Get(c, k.Gateway)
	if len(l.Chains) == 0 {
		return nil
	}
	var chains []envoy.Chain
	var trust *resource.Resource
	for _, ch := range l.Chains {
		m := u.chain(ch, gw)
		if ch.Clients.Trust != "" {
			trust = u.credentials.Clients(c, k).Trust
		}
		m.PerHost = u.tables.PerHost(c, ch.Table)
		chains = append(chains, m)
	}
	var put []resource.Name
	for _, at := range l.Places {
		r, err := u.model(k, l, at.Port, chains, gw).Resource()
		if err != nil { // each chain is good alone, and what two could share is a conflict
			return nil
		}
		put = u.put(c, at.Scope, r, trust) // it has the same name in each
	}
	return put
}
