package envoy

import (
	"fmt"
	"math"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
)

// invalidBackend is a cluster that never exists: every real one has slashes.
const invalidBackend = "aether-invalid-backend"

// Validate tells whether Envoy will take the route. Errors are *InvalidError with the
// route's name and without an origin: a caller can leave the route out and serve the rest.
func (r Route) Validate() error {
	err := within("route "+r.Name, r.check())
	if e, ok := err.(*InvalidError); ok { //nolint:errorlint // within returns it unwrapped
		e.Route = r.Name
	}
	return err
}

func (r Route) check() error {
	if err := check.Name(r.Name); err != nil {
		return within("name", err)
	}
	if err := r.Path.check(); err != nil {
		return within("path", err)
	}
	for _, h := range r.Headers {
		if err := h.check(); err != nil {
			return within(fmt.Sprintf("header %q", h.Name), err)
		}
	}
	if r.Method != "" {
		if err := check.Token(r.Method); err != nil {
			return within("method", err)
		}
	}
	for _, q := range r.Query {
		if err := checkMatch(q.Name, q.Value, q.Regex); err != nil {
			return within(fmt.Sprintf("query parameter %q", q.Name), err)
		}
	}
	var total uint64
	for _, b := range r.Backends {
		total += uint64(b.Weight)
		if b.Cluster == "" {
			continue
		}
		if err := checkClusterName(b.Cluster); err != nil {
			return within(fmt.Sprintf("backend %q", b.Cluster), err)
		}
	}
	if total > math.MaxUint32 {
		return invalid("backends", "weights add up to %d, more than %d", total, uint32(math.MaxUint32))
	}
	return nil
}

func (p PathMatch) check() error {
	switch p.Kind {
	case PathRegex:
		return check.Regex(p.Value)
	case PathPrefix:
		if p.Value == "" {
			return nil
		}
	case PathExact:
	default:
		return fmt.Errorf("kind %d is unknown", p.Kind)
	}
	if !strings.HasPrefix(p.Value, "/") || strings.ContainsAny(p.Value, "?#") {
		return fmt.Errorf("%q: want a path that begins with / and has no ? or #", p.Value)
	}
	return nil
}

func (h HeaderMatch) check() error {
	if err := check.Token(h.Name); err != nil {
		return err
	}
	if strings.ToLower(h.Name) != h.Name {
		return fmt.Errorf("want lower case")
	}
	if h.Name == hcm.ScopeHeader {
		return fmt.Errorf("is the proxy's own")
	}
	return checkMatch(h.Name, h.Value, h.Regex)
}

// checkMatch is what header and query conditions have in common.
func checkMatch(name, value string, isRegex bool) error {
	if name == "" {
		return fmt.Errorf("name is empty")
	}
	if isRegex {
		return check.Regex(value)
	}
	if strings.ContainsAny(value, "\x00\r\n") {
		return fmt.Errorf("value has a line break")
	}
	return nil
}

func (r Route) encode() *routev3.Route {
	m := &routev3.Route{Name: r.Name, Match: &routev3.RouteMatch{}}
	r.Path.encode(m.GetMatch())
	if r.Method != "" {
		m.Match.Headers = append(m.Match.Headers, headerMatch(":method", r.Method, false))
	}
	for _, h := range r.Headers {
		m.Match.Headers = append(m.Match.Headers, headerMatch(h.Name, h.Value, h.Regex))
	}
	for _, q := range r.Query {
		m.Match.QueryParameters = append(m.Match.QueryParameters, &routev3.QueryParameterMatcher{
			Name: q.Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: wire.String(q.Value, q.Regex),
			},
		})
	}
	r.action(m)
	return m
}

func (p PathMatch) encode(m *routev3.RouteMatch) {
	prefix := strings.TrimRight(p.Value, "/")
	switch {
	case p.Kind == PathExact:
		m.PathSpecifier = &routev3.RouteMatch_Path{Path: p.Value}
	case p.Kind == PathRegex:
		m.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: wire.Regex(p.Value)}
	case prefix == "":
		m.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: "/"}
	default:
		m.PathSpecifier = &routev3.RouteMatch_PathSeparatedPrefix{PathSeparatedPrefix: prefix}
	}
}

func headerMatch(name, value string, isRegex bool) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{
		Name:                 name,
		HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: wire.String(value, isRegex)},
	}
}

func respond(status uint32) *routev3.Route_DirectResponse {
	return &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: status}}
}

// action says what is done with what matched: a direct 500, one cluster, or shares.
func (r Route) action(m *routev3.Route) {
	var valid []*routev3.WeightedCluster_ClusterWeight
	var invalidShare uint32
	for _, b := range r.Backends {
		switch {
		case b.Weight == 0:
		case b.Cluster == "":
			invalidShare += b.Weight
		default:
			valid = append(valid, &routev3.WeightedCluster_ClusterWeight{Name: b.Cluster, Weight: wrapperspb.UInt32(b.Weight)})
		}
	}
	if len(valid) == 0 {
		m.Action = respond(500)
		return
	}
	// No time limit of ours: the Gateway API leaves the default to the implementation,
	// and Envoy's 15 s would cut long answers and streams. The listener's idle timeout
	// ends what stands still.
	action := &routev3.RouteAction{
		Timeout:                     durationpb.New(0),
		ClusterNotFoundResponseCode: routev3.RouteAction_SERVICE_UNAVAILABLE,
	}
	switch {
	case invalidShare > 0:
		// The code is one for the route: while a route has an invalid backend, a valid
		// cluster that is missing answers 500, not 503.
		action.ClusterNotFoundResponseCode = routev3.RouteAction_INTERNAL_SERVER_ERROR
		valid = append(valid, &routev3.WeightedCluster_ClusterWeight{Name: invalidBackend, Weight: wrapperspb.UInt32(invalidShare)})
		fallthrough
	case len(valid) > 1:
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: valid}}
	default:
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: valid[0].GetName()}
	}
	m.Action = &routev3.Route_Route{Route: action}
}
