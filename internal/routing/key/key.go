// Package key names what the routing graph computes: ports, route tables, hosts and
// clusters, by the objects they come from. The names of Envoy resources are made here
// and nowhere else, so that a person who reads a config dump, a metric or an access log
// knows what they see, and so that a name is stable for the life of its object.
package key

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/scope"
)

// Name is the namespace and name of an object whose kind is clear from where it stands.
type Name struct{ Namespace, Name string }

// In is the name of an object that is referred to from namespace own and may say another.
func In[N, M ~string](own string, other *N, named M) Name {
	if other != nil && *other != "" {
		own = string(*other)
	}
	return Name{own, string(named)}
}

// String is namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// ParseName reads what String wrote; false if it did not.
func ParseName(s string) (Name, bool) {
	namespace, name, is := strings.Cut(s, "/")
	return Name{Namespace: namespace, Name: name}, is && namespace != "" && name != "" && !strings.Contains(name, "/")
}

// Object is the key of the object of that kind.
func (n Name) Object(k object.Kind) object.Key {
	return object.Key{Kind: k, Namespace: n.Namespace, Name: n.Name}
}

// Compare orders by namespace, then name.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Port is one port of one Gateway: what Envoy knows as one listener.
type Port struct {
	Gateway Name
	Port    uint32 // as the Gateway says it
}

// String is the listener's name, <namespace>/<gateway>/<port>.
func (p Port) String() string { return fmt.Sprintf("%s/%d", p.Gateway, p.Port) }

// Parent is what routes attach to: a Gateway or a ListenerSet.
type Parent struct {
	Kind object.Kind
	Name
}

// Section is one listener of a Gateway or a ListenerSet.
type Section struct {
	Parent
	Section string
}

// Table is one route table: all HTTP sections of a port, or one HTTPS section.
type Table struct {
	Port
	Name string // <namespace>/<gateway>/<port>, or for HTTPS …/<section>, or …/<namespace>/<listenerset>/<section>
}

// NewTable names the table of a section, which is of a ListenerSet unless set is zero.
// The names of HTTP and HTTPS tables cannot meet: a section's name that could be taken
// for a port gets a dot, with which no section's name begins.
func NewTable(p Port, set Name, section string, secure bool) Table {
	switch {
	case !secure:
		return Table{p, p.String()}
	case set != Name{}:
		return Table{p, p.Gateway.String() + "/" + set.String() + "/" + section}
	case strings.Trim(section, "0123456789") == "":
		section = "." + section
	}
	return Table{p, p.Gateway.String() + "/" + section}
}

// Secure reports whether it is that of an HTTPS section.
func (t Table) Secure() bool { return t.Name != t.Port.String() }

// Host is one host of one table: exact, "*.x" or "*", in lower case.
type Host struct {
	Table Table
	Host  string
}

// Compare orders by table, then host.
func (h Host) Compare(o Host) int {
	return cmp.Or(cmp.Compare(h.Table.Name, o.Table.Name), cmp.Compare(h.Host, o.Host))
}

// Service is one port of one Service, as what speaks to it does.
type Service struct {
	Service Name
	Port    uint32
	Client  Name // the Gateway whose certificate is shown; zero: none is
}

// Cluster is the name of its cluster, <namespace>/<service>/<port>; for a Gateway's
// certificate @<namespace>/<gateway> follows.
func (s Service) Cluster() string {
	if s.Client != (Name{}) {
		return fmt.Sprintf("%s/%d@%s", s.Service, s.Port, s.Client)
	}
	return fmt.Sprintf("%s/%d", s.Service, s.Port)
}

// Compare orders by the cluster's name.
func (s Service) Compare(o Service) int { return cmp.Compare(s.Cluster(), o.Cluster()) }

// Anonymous is the same port without a certificate.
func (s Service) Anonymous() Service { return Service{Service: s.Service, Port: s.Port} }

// Placed is a thing in one scope.
type Placed[K comparable] struct {
	Scope scope.Scope
	Of    K
}

// Sorted is the keys of a map in the order of compare.
func Sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compare)
	return keys
}

// Oldest is the one of the lowest age, then the first by namespace and name; zero: there
// are none.
func Oldest(created map[Name]int64) Name {
	var first Name
	for i, n := range Sorted(created, Name.Compare) {
		if i == 0 || created[n] < created[first] {
			first = n
		}
	}
	return first
}
