package route

import (
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

// InvalidBackend is a cluster that never exists: every real one has slashes.
const InvalidBackend = "aether-invalid-backend"

// forward sends requests to one cluster, or shares them among several; nil if there is
// none to send them to.
func (r Route) forward() *routev3.RouteAction {
	clusters, code := r.clusters()
	if len(clusters) == 0 {
		return nil
	}
	// Without a timeout of its own a route has no time limit of ours: the Gateway API
	// leaves the default to the implementation, and Envoy's 15 s would cut long answers
	// and streams. The listener's idle timeout ends what stands still.
	action := &routev3.RouteAction{Timeout: durationpb.New(r.Timeout), ClusterNotFoundResponseCode: code}
	if len(clusters) > 1 || r.changedByBackend() {
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: clusters}}
	} else {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusters[0].GetName()}
	}
	r.Rewrite.encode(r.Path, action)
	for _, m := range r.Mirrors {
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, m.encode())
	}
	return action
}

// clusters is the clusters that requests are shared among, none if all would be invalid,
// and what is answered for one that is missing. That is one code for the route: while a
// route has an invalid backend, a valid cluster that is missing answers 500, not 503.
func (r Route) clusters() ([]*routev3.WeightedCluster_ClusterWeight, routev3.RouteAction_ClusterNotFoundResponseCode) {
	var list []*routev3.WeightedCluster_ClusterWeight
	var invalidShare uint32
	put := func(name string, weight uint32, b Backend) {
		c := &routev3.WeightedCluster_ClusterWeight{Name: name, Weight: wrapperspb.UInt32(weight)}
		if r.changedByBackend() {
			c.RequestHeadersToAdd, c.RequestHeadersToRemove = r.Request.then(b.Request).encode()
			c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = r.Response.then(b.Response).encode()
		}
		list = append(list, c)
	}
	for _, b := range r.Backends {
		switch {
		case b.Weight == 0:
		case b.Cluster == "":
			invalidShare += b.Weight
		default:
			put(b.Cluster, b.Weight, b)
		}
	}
	if len(list) == 0 || invalidShare == 0 {
		return list, routev3.RouteAction_SERVICE_UNAVAILABLE
	}
	put(InvalidBackend, invalidShare, Backend{})
	return list, routev3.RouteAction_INTERNAL_SERVER_ERROR
}

// changedByBackend reports whether headers are changed for each backend by itself. Then
// the rule's changes are made there too: Envoy would make them after the backend's.
func (r Route) changedByBackend() bool {
	return slices.ContainsFunc(r.Backends, func(b Backend) bool {
		return b.Weight > 0 && b.Cluster != "" && !(b.Request.isZero() && b.Response.isZero())
	})
}

// encode: the mirrored host stays as it is, without Envoy's "-shadow". All of it is told
// in millionths, so that which requests are mirrored has nothing to do with which of
// some weighted clusters they go to: both come from one number of the request.
func (m Mirror) encode() *routev3.RouteAction_RequestMirrorPolicy {
	p := &routev3.RouteAction_RequestMirrorPolicy{Cluster: m.Cluster, DisableShadowHostSuffixAppend: true}
	if m.PerMillion < Million {
		p.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: perMillion(m.PerMillion)}
	}
	return p
}

func (w Rewrite) encode(p PathMatch, action *routev3.RouteAction) {
	if w.Host != "" {
		action.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: w.Host}
	}
	switch {
	case w.Path.Kind == ReplacePath:
		action.RegexRewrite = substitute("^.*$", w.Path.whole())
	case w.Path.Kind == ReplacePrefix:
		action.PrefixRewrite, action.RegexRewrite = w.Path.prefix(p)
	}
}

// whole is the path that takes the place of all others.
func (c PathChange) whole() string {
	if c.Value == "" {
		return "/"
	}
	return c.Value
}

// prefix is how the prefix of p is replaced: by text, by an expression, or not at all.
// Slashes at the end of either do not count, and a path always begins with one. As text,
// "/" in place of "/foo" would make "//bar" of "/foo/bar".
func (c PathChange) prefix(p PathMatch) (string, *matcherv3.RegexMatchAndSubstitute) {
	from, to := strings.TrimRight(p.Value, "/"), strings.TrimRight(c.Value, "/")
	switch {
	case from == "" && to == "":
		return "", nil
	case from == "":
		return to + "/", nil // "/" is what was matched
	case to == "":
		return "", substitute("^"+regexp.QuoteMeta(from)+"/?", "/")
	}
	return to, nil
}

// substitute: what stands for the match has no backslash, which checked paths do not have.
func substitute(pattern, with string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: wire.Regex(pattern), Substitution: with}
}
