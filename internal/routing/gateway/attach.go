package gateway

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
)

// Attachment is what comes of one parentRef of a route.
type Attachment struct {
	Rejected condition.Problem
	Sections []string   // to which the route is attached
	Hosts    []key.Host // where it is served, sorted
	Isolated []string   // hosts of those sections that never reach it: another section has them more specifically; sorted
}

// Attach decides one parentRef: of the parent's own sections those that it selects, those
// of them that allow the route, those of them that share a hostname with it. labelsOf
// gives a namespace's labels and is called only if a selector asks for them; holder is
// the ID of the section that requests for a host of a port reach, the most specific one:
// a route of any other never sees them (listener isolation). It is empty if they reach none.
func Attach(sections []Section, parent key.Parent, r *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference, labelsOf func(string) labels.Set, holder func(key.Port, string) string) Attachment {
	var a Attachment
	var lost []key.Host
	selected, allowed := false, false
	for _, s := range sections {
		if ref.SectionName != nil && *ref.SectionName != "" && string(*ref.SectionName) != s.Name ||
			ref.Port != nil && uint32(*ref.Port) != s.Table.Port.Port {
			continue
		}
		selected = true
		if len(s.Kinds) == 0 || !allows(s.From, s.Selector, parent.Namespace, r.Namespace, labelsOf) {
			continue
		}
		allowed = true
		shared := s.shared(r.Spec.Hostnames)
		if len(shared) == 0 {
			continue
		}
		a.Sections = append(a.Sections, s.Name)
		for _, h := range shared {
			if !s.Accepted() {
				continue
			}
			switch holder(s.Table.Port, h) {
			case s.ID():
				a.Hosts = append(a.Hosts, key.Host{Table: s.Table, Host: h})
			case "": // the Gateway is not served, and requests reach none of its sections
			default:
				lost = append(lost, key.Host{Table: s.Table, Host: h})
			}
		}
	}
	switch {
	case !selected:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNoMatchingParent, "%s %s has no listener of that name and port", parent.Kind, parent.Name)
	case !allowed:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNotAllowedByListeners, "no listener allows HTTPRoutes of namespace %s", r.Namespace)
	case len(a.Sections) == 0:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNoMatchingListenerHostname, "no listener's hostname matches one of the route's")
	}
	slices.SortFunc(a.Hosts, key.Host.Compare)
	a.Hosts = slices.Compact(a.Hosts)
	for _, l := range lost {
		served := func(h key.Host) bool { return h.Host == l.Host && h.Table.Port == l.Table.Port }
		if !slices.ContainsFunc(a.Hosts, served) {
			a.Isolated = append(a.Isolated, l.Host)
		}
	}
	slices.Sort(a.Isolated)
	a.Isolated = slices.Compact(a.Isolated)
	return a
}

// shared is the hosts for which the section would serve a route, in lower case.
func (s Section) shared(route []gatewayv1.Hostname) []string {
	if len(route) == 0 {
		return []string{s.Host}
	}
	var list []string
	for _, h := range route {
		host, meet := hostname.Intersect(strings.ToLower(string(h)), s.Host)
		if meet && hostname.Valid(host) {
			list = append(list, host)
		}
	}
	return list
}
