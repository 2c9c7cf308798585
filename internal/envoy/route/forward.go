package route

import (
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

// forward sends requests to one cluster, or shares them among several; nil if there is
// none to send them to. A cluster that is missing answers 503: Envoy's own choice.
func (s share) forward() *routev3.RouteAction {
	clusters := s.clusters()
	if len(clusters) == 0 {
		return nil
	}
	// Without a timeout of its own a route has no time limit of ours: the Gateway API
	// leaves the default to the implementation, and Envoy's 15 s would cut long answers
	// and streams. The listener's idle timeout ends what stands still.
	action := &routev3.RouteAction{Timeout: durationpb.New(s.Timeout)}
	if len(clusters) > 1 || s.changedByBackend() {
		action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: clusters}}
	} else {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: clusters[0].GetName()}
	}
	s.Rewrite.encode(s.Path, action)
	for _, m := range s.Mirrors {
		action.RequestMirrorPolicies = append(action.RequestMirrorPolicies, s.mirror(m))
	}
	return action
}

// clusters is the clusters that requests are shared among.
func (r Route) clusters() []*routev3.WeightedCluster_ClusterWeight {
	var list []*routev3.WeightedCluster_ClusterWeight
	for _, b := range r.Backends {
		if !b.serves() {
			continue
		}
		c := &routev3.WeightedCluster_ClusterWeight{Name: b.Cluster, Weight: wrapperspb.UInt32(b.Weight)}
		if r.changedByBackend() {
			c.RequestHeadersToAdd, c.RequestHeadersToRemove = r.Request.then(b.Request).encode()
			c.ResponseHeadersToAdd, c.ResponseHeadersToRemove = r.Response.then(b.Response).encode()
		}
		list = append(list, c)
	}
	return list
}

// serves reports whether requests go to the backend's cluster.
func (b Backend) serves() bool { return b.Weight > 0 && b.Cluster != "" }

// changedByBackend reports whether headers are changed for each backend by itself. Then
// the rule's changes are made there too: Envoy would make them after the backend's.
func (r Route) changedByBackend() bool {
	return slices.ContainsFunc(r.Backends, func(b Backend) bool {
		return b.serves() && !(b.Request.isZero() && b.Response.isZero())
	})
}

// mirror: the mirrored host stays as it is, without Envoy's "-shadow". Which requests are
// mirrored is told by the number by which they came to the share, so it is a part of the
// share's numbers. All of it is told in millionths, so that it has nothing to do with which
// of some weighted clusters a request goes to.
func (s share) mirror(m Mirror) *routev3.RouteAction_RequestMirrorPolicy {
	p := &routev3.RouteAction_RequestMirrorPolicy{Cluster: m.Cluster, DisableShadowHostSuffixAppend: true}
	if m.PerMillion < Million {
		// Rounded up, so that a part of a share that has a number at all is not none.
		part := (uint64(s.below-s.from)*uint64(m.PerMillion) + Million - 1) / Million
		p.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: perMillion(s.from + uint32(part))}
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
	expression, needed := eitherCase(from)
	switch {
	case from == "" && to == "":
		return "", nil
	case from == "":
		return to + "/", nil // "/" is what was matched
	case to == "":
		return "", substitute("^"+expression+"/?", "/")
	case needed:
		return "", substitute("^"+expression, to)
	}
	return to, nil
}

// substitute: what stands for the match has no backslash, which checked paths do not have.
func substitute(pattern, with string) *matcherv3.RegexMatchAndSubstitute {
	return &matcherv3.RegexMatchAndSubstitute{Pattern: wire.Regex(pattern), Substitution: with}
}
