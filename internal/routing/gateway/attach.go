package gateway

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
}

// Attach decides one parentRef: the sections that it selects, those of them that allow
// the route, those of them that share a hostname with it. labelsOf gives the labels of
// the route's namespace and is called only if a selector asks for them.
func Attach(sections []Section, gateway key.Name, r *gatewayv1.HTTPRoute, ref *gatewayv1.ParentReference, labelsOf func() labels.Set) Attachment {
	var a Attachment
	selected, allowed := false, false
	for _, s := range sections {
		if ref.SectionName != nil && *ref.SectionName != "" && string(*ref.SectionName) != s.Name ||
			ref.Port != nil && uint32(*ref.Port) != s.Table.Port.Port {
			continue
		}
		selected = true
		if len(s.Kinds) == 0 || !s.allows(gateway.Namespace, r.Namespace, labelsOf) {
			continue
		}
		allowed = true
		shared := s.shared(r.Spec.Hostnames)
		if len(shared) == 0 {
			continue
		}
		a.Sections = append(a.Sections, s.Name)
		for _, h := range shared {
			if s.Accepted() && owner(sections, s.Table.Port, h) == s.Name {
				a.Hosts = append(a.Hosts, key.Host{Table: s.Table, Host: h})
			}
		}
	}
	switch {
	case !selected:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNoMatchingParent, "Gateway %s has no listener of that name and port", gateway)
	case !allowed:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNotAllowedByListeners, "no listener allows HTTPRoutes of namespace %s", r.Namespace)
	case len(a.Sections) == 0:
		a.Rejected = condition.Problemf(gatewayv1.RouteReasonNoMatchingListenerHostname, "no listener's hostname matches one of the route's")
	}
	slices.SortFunc(a.Hosts, key.Host.Compare)
	a.Hosts = slices.Compact(a.Hosts)
	return a
}

// allows reports whether routes of a namespace may attach.
func (s Section) allows(own, namespace string, labelsOf func() labels.Set) bool {
	switch s.From {
	case gatewayv1.NamespacesFromAll:
		return true
	case gatewayv1.NamespacesFromSame:
		return namespace == own
	case gatewayv1.NamespacesFromSelector:
		selector, err := metav1.LabelSelectorAsSelector(s.Selector)
		return err == nil && selector.Matches(labelsOf())
	case gatewayv1.NamespacesFromNone:
	}
	return false
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

// owner is the section that requests for host reach: the most specific one of its port.
// A route of any other never sees them (listener isolation).
func owner(list []Section, port key.Port, host string) string {
	best := -1
	for i, s := range list {
		if s.Accepted() && s.Table.Port == port && hostname.Covers(s.Host, host) &&
			(best < 0 || hostname.CompareSpecificity(s.Host, list[best].Host) < 0) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return list[best].Name
}
