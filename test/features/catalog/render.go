package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"aether.io/aether/test/features/example"
)

// The folder of the examples, and the documents that are made of them.
const (
	folder   = "examples/features"
	readme   = "examples/README.md"
	document = "docs/reference/features.md"
)

// files are the documents by path, relative to the repository's root.
func files(all []*example.Example, supported []gatewayv1.SupportedFeature) map[string]string {
	return map[string]string{readme: index(all), document: table(all, supported)}
}

// index is the list of examples, with how to run one.
func index(all []*example.Example) string {
	var b strings.Builder
	b.WriteString(`# Examples

<!-- Made by "make generate" from the first line of each requests.yaml. -->

[quickstart](quickstart) is where to begin, and [kubernetes](kubernetes) on a cluster. Each folder of [features](features) shows one feature:
manifests to read, and ` + "`requests.yaml`" + `, which says what requests are answered. A test sends every one of
them to the real thing (` + "`make component`" + `); what its format can say is told by
` + "[its package](../test/features/example/example.go)" + `.

To run one by hand, stop what else serves its ports, such as the quickstart, and take three terminals:

` + "```" + `
go run ./test/features/backends examples/features/weights   # its backends, its certificates, and requests to try
bin/aetherctl standalone examples/features/weights          # serves it (it says that requests.yaml is not for it)
curl -i -H 'Host: shop.example.com' localhost:8080/         # or another of those that the first terminal shows
` + "```" + `

The first one is started first: it writes the certificates, if there are any, to ` + "`made.yaml`" + ` in the folder. A
backend answers with what it saw, and with its name in the header ` + "`echo-backend`" + `. Ctrl-C stops the first two; nothing stays.

| Example | |
|---|---|
`)
	for _, e := range all {
		fmt.Fprintf(&b, "| [%s](features/%s) | %s |\n", e.Name, e.Name, e.Title)
	}
	return b.String()
}

// shown are the objects whose features are listed, by the beginning of the features' names.
var shown = []string{"BackendTLSPolicy", "GRPCRoute", "Gateway", "HTTPRoute", "ListenerSet", "Mesh", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute"}

// table is every feature of the Gateway API, whether it is supported, and where it is shown.
func table(all []*example.Example, supported []gatewayv1.SupportedFeature) string {
	var b strings.Builder
	b.WriteString(`# Features of the Gateway API

<!-- Made by "make generate" from internal/routing/report/features.go and examples/features. -->

What a GatewayClass of ours says in ` + "`status.supportedFeatures`" + `, and where each feature is shown. A feature is
claimed only if it is there as the specification's text has it. Names are those of the Gateway API;
those of its experimental channel are marked.

| Feature | Supported | Examples |
|---|---|---|
`)
	names := features.AllFeatures.UnsortedList()
	slices.SortFunc(names, func(a, b features.Feature) int { return strings.Compare(string(a.Name), string(b.Name)) })
	for _, f := range names {
		if !slices.ContainsFunc(shown, func(prefix string) bool { return strings.HasPrefix(string(f.Name), prefix) }) {
			continue
		}
		name, yes := string(f.Name), ""
		if f.Channel == features.FeatureChannelExperimental {
			name += " (experimental)"
		}
		if claimed(supported, f.Name) {
			yes = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, yes, strings.Join(links(all, string(f.Name)), ", "))
	}
	return b.String()
}

func claimed(supported []gatewayv1.SupportedFeature, name features.FeatureName) bool {
	return slices.ContainsFunc(supported, func(s gatewayv1.SupportedFeature) bool { return string(s.Name) == string(name) })
}

// links leads from the document to the examples of a feature.
func links(all []*example.Example, feature string) []string {
	var out []string
	for _, e := range all {
		if slices.Contains(e.Features, feature) {
			out = append(out, fmt.Sprintf("[%s](%s)", e.Name, path.Join("../..", folder, e.Name)))
		}
	}
	return out
}

// gaps says which supported features have no example, and which examples name a feature
// that does not exist.
func gaps(all []*example.Example, supported []gatewayv1.SupportedFeature) []string {
	var out []string
	for _, s := range supported {
		if len(links(all, string(s.Name))) == 0 {
			out = append(out, fmt.Sprintf("%s is supported and has no example", s.Name))
		}
	}
	for _, e := range all {
		for _, name := range e.Features {
			if features.GetFeature(features.FeatureName(name)).Name == "" {
				out = append(out, fmt.Sprintf("%s shows %s, which is no feature of the Gateway API", e.Name, name))
			}
		}
	}
	return out
}
