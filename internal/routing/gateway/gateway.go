// Package gateway reads a Gateway as its own spec, its class and its parameters say it:
// its sections, their conflicts, and which routes attach to them. It is given objects
// and finds none itself; what depends on other Gateways, on certificates or on proxies
// is decided elsewhere.
package gateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
)

// Gateway is a Gateway of ours. The zero Gateway is one that does not exist or is
// another controller's.
type Gateway struct {
	Ours        bool
	Generation  int64
	Created     int64                // Unix seconds
	Rejected    condition.Problem    // Accepted is false: nothing of it is served
	Unusable    condition.Problem    // Programmed can never be true: nothing of it is served
	Stands      bool                 // it is Rejected, and served as it was last
	Wants       scope.Scope          // where it is to be served; zero: where cannot be had
	Account     key.Name             // the ServiceAccount of its own proxies; zero: it has none
	Places      []Place              // where it is served; the one that counts is first
	RouteScopes configv1.RouteScopes // empty: Auto
	Clients     Clients
	Sections    []Section         // of the Gateway itself, then of the ListenerSets that it allows
	Sets        map[key.Name]bool // those ListenerSets
	// Certificates is by the section's ID. It is apart from Sections, on which routes depend.
	Certificates map[string][]gatewayv1.SecretObjectReference
	Frontend     *gatewayv1.FrontendTLSConfig // nil: clients show no certificate
	Idle         []string                     // what is asked for and has no effect
	Addresses    []string                     // at which it is reached
	Unreachable  condition.Problem            // it has no address yet, and may get one: what is there is served
	Front        front.Front                  // what is wanted in front of it, if its site maps ports
}

// Read reads a Gateway whose class is ours with the ListenerSets that it allows, in the
// order of precedence, and its merged parameters. invalid says why those of the Gateway
// or its class cannot be used: it is served by those that it was served by last, if that is
// on record, and never by defaults.
func Read(gw *gatewayv1.Gateway, sets []*gatewayv1.ListenerSet, p Parameters, invalid string, site Site) Gateway {
	g := Gateway{
		Ours: true, Generation: gw.Generation, Created: gw.CreationTimestamp.Unix(),
		Sections:     sections(gw, sets, site),
		Sets:         map[key.Name]bool{},
		Certificates: map[string][]gatewayv1.SecretObjectReference{},
	}
	if invalid != "" {
		p, g.Stands = site.recall()
	}
	own, why := ownWorld(gw)
	g.Wants = scope.SharedPool()
	dedicated := p.set(&g)
	if dedicated && site.Pooled {
		g.Idle = append(g.Idle, "mode Dedicated of its parameters has no effect: here is one proxy, which serves all Gateways")
	}
	if dedicated && !site.Pooled {
		g.Wants, g.Unusable = own, why
	} else if p.drains {
		g.Idle = append(g.Idle, "drainSeconds of its parameters has no effect on shared proxies, which drain as their installation says")
	}
	g.settle(g.Wants, own, site)
	if slices.ContainsFunc(g.Places, func(p Place) bool { return p.Scope == own }) {
		g.Account = key.Name{Namespace: gw.Namespace, Name: front.Account(key.Name{Namespace: gw.Namespace, Name: gw.Name}, string(gw.Spec.GatewayClassName))}
	}
	if from, selector := allowedSets(gw); from == gatewayv1.NamespacesFromSelector {
		if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
			g.Idle = append(g.Idle, fmt.Sprintf("allowedListeners.namespaces.selector selects nothing: %v", err))
		}
	}
	if gw.Spec.TLS != nil {
		g.Frontend = gw.Spec.TLS.Frontend
	}
	for _, l := range gw.Spec.Listeners {
		g.secure(Section{Name: string(l.Name)}, l.TLS)
	}
	for _, set := range sets {
		n := key.Name{Namespace: set.Namespace, Name: set.Name}
		g.Sets[n] = true
		for _, l := range set.Spec.Listeners {
			g.secure(Section{Name: string(l.Name), Set: n}, l.TLS)
		}
	}
	g.Front = p.front(gw, g)
	g.Idle = append(g.Idle, g.Front.Proxies.Dropped...)
	if site.Mapped && len(g.Addresses) == 0 {
		g.Unreachable = unreachable(g.Front.Address)
	}
	g.checkAddresses(gw, site)
	switch {
	case invalid != "":
		g.Rejected = condition.Problemf(gatewayv1.GatewayReasonInvalidParameters, "%s", invalid)
	case g.Rejected.IsZero() && !slices.ContainsFunc(g.Sections, Section.Accepted):
		g.Rejected = condition.Problemf(gatewayv1.GatewayReasonListenersNotValid, "no listener is valid")
	}
	return g
}

// Ports is the ports that its accepted sections bind in a place, each with the age (creation,
// in Unix seconds) of the first object that brings it. What a ListenerSet brings is no older
// than the ListenerSet, or to attach one to an old Gateway would be to take a port from others.
func (g Gateway) Ports(at Place) map[uint32]int64 {
	ports := map[uint32]int64{}
	for _, s := range g.Sections {
		bound, age := at.Bound[s.Table.Port.Port], max(g.Created, s.Created)
		if first, there := ports[bound]; s.Accepted() && bound > 0 && (!there || age < first) {
			ports[bound] = age
		}
	}
	return ports
}

func (g *Gateway) secure(s Section, config *gatewayv1.ListenerTLSConfig) {
	if config != nil {
		g.Certificates[s.ID()] = config.CertificateRefs
	}
}

// maxAccountName is the longest name of a ServiceAccount.
const maxAccountName = 253

// ownWorld is the world of a Gateway whose proxies run as {gateway}-{class}, or why it
// cannot have one.
func ownWorld(gw *gatewayv1.Gateway) (scope.Scope, condition.Problem) {
	account := front.Account(key.Name{Namespace: gw.Namespace, Name: gw.Name}, string(gw.Spec.GatewayClassName))
	own, err := scope.Gateway(gw.Namespace, gw.Name)
	if err != nil || len(account) > maxAccountName {
		return scope.Scope{}, condition.Problemf(gatewayv1.GatewayReasonInvalid, "its proxies' ServiceAccount would have the name %s of %d characters, at most %d can be had", account, len(account), maxAccountName)
	}
	return own, condition.Problem{}
}

// unreachable says what a Gateway waits for. That an address which was asked for will never
// come cannot be told from that it has not come yet, and it is for who asked to know that
// it is not there.
func unreachable(asked string) condition.Problem {
	if asked != "" {
		return condition.Problemf(gatewayv1.GatewayReasonAddressNotUsable, "address %s is asked for and has not been given: it may be taken, or none that this cluster has", asked)
	}
	return condition.Problemf(gatewayv1.GatewayReasonAddressNotAssigned, "nothing has given it an address yet")
}

// checkAddresses: addresses are the installation's and cannot be chosen. What is in front of
// a Gateway may be asked for one, and need not give it.
func (g *Gateway) checkAddresses(gw *gatewayv1.Gateway, site Site) {
	for _, a := range gw.Spec.Addresses {
		switch {
		case a.Type != nil && *a.Type != gatewayv1.IPAddressType:
			g.Rejected = condition.Problemf(gatewayv1.GatewayReasonUnsupportedAddress, "addresses of type %s are not supported", *a.Type)
		case site.Mapped && len(g.Addresses) == 0: // it may still come
		case a.Value == "" || slices.Contains(g.published(site), a.Value):
		case site.Mapped:
			g.Unusable = condition.Problemf(gatewayv1.GatewayReasonAddressNotUsable, "address %s is asked for, and given is %s", a.Value, strings.Join(g.Addresses, ", "))
		default:
			g.Unusable = condition.Problemf(gatewayv1.GatewayReasonAddressNotUsable, "address %s is not one of this installation's", a.Value)
		}
	}
}

// published is the addresses of which a Gateway may ask for one.
func (g *Gateway) published(site Site) []string {
	if site.Mapped {
		return g.Addresses
	}
	return site.PublishAddresses
}
