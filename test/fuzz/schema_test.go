package fuzz_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// definition is what a kind's objects may say.
type definition struct {
	apiVersion, kind string
	namespaced       bool
	spec, status     *apiextensionsv1.JSONSchemaProps
}

// definitions reads the CustomResourceDefinitions that the product embeds, by kind.
func definitions(tb testing.TB) map[string]definition {
	tb.Helper()
	out := map[string]definition{}
	for _, dir := range []string{"../../internal/crd/gateway-api", "../../charts/crds/templates"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				tb.Fatal(err)
			}
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(text, &crd); err != nil {
				tb.Fatal(err)
			}
			for _, v := range crd.Spec.Versions {
				if !v.Served || v.Schema == nil || out[crd.Spec.Names.Kind].spec != nil {
					continue
				}
				spec, status := v.Schema.OpenAPIV3Schema.Properties["spec"], v.Schema.OpenAPIV3Schema.Properties["status"]
				out[crd.Spec.Names.Kind] = definition{
					apiVersion: crd.Spec.Group + "/" + v.Name, kind: crd.Spec.Names.Kind,
					namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, spec: &spec, status: &status,
				}
			}
		}
	}
	if out["HTTPRoute"].spec == nil {
		tb.Fatal("no definitions of the Gateway API: run make build, or go generate ./internal/crd")
	}
	return out
}

// misfits says what of a value the schema does not admit. Formats and rules are not looked
// at; lastTransitionTime is set where a status is written.
func misfits(s *apiextensionsv1.JSONSchemaProps, v any, at string) (out []string) {
	say := func(format string, args ...any) { out = append(out, at+": "+fmt.Sprintf(format, args...)) }
	switch v := v.(type) {
	case map[string]any:
		for _, name := range s.Required {
			if _, there := v[name]; !there && name != "lastTransitionTime" {
				say("%s is required", name)
			}
		}
		for name, field := range v {
			if p, ok := s.Properties[name]; ok && field != nil {
				out = append(out, misfits(&p, field, at+"."+name)...)
			}
		}
	case []any:
		if s.MaxItems != nil && len(v) > int(*s.MaxItems) || s.MinItems != nil && len(v) < int(*s.MinItems) {
			say("%d items", len(v))
		}
		seen := map[string]bool{}
		for i, item := range v {
			if fields, ok := item.(map[string]any); ok && len(s.XListMapKeys) > 0 {
				key := ""
				for _, name := range s.XListMapKeys {
					key += fmt.Sprint(fields[name], "|")
				}
				if seen[key] {
					say("%s twice", key)
				}
				seen[key] = true
			}
			out = append(out, misfits(s.Items.Schema, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case string:
		n := utf8.RuneCountInString(v)
		if s.MaxLength != nil && n > int(*s.MaxLength) || s.MinLength != nil && n < int(*s.MinLength) {
			say("%d characters: %.60q", n, v)
		}
		if s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v) {
			say("%.60q is not %s", v, s.Pattern)
		}
		if len(s.Enum) > 0 && !slices.ContainsFunc(s.Enum, func(e apiextensionsv1.JSON) bool { return string(e.Raw) == strconv.Quote(v) }) {
			say("%q is none of the values", v)
		}
		if !utf8.ValidString(v) {
			say("is no UTF-8")
		}
	}
	return out
}

// value makes one that the schema admits, or nearly: rules across fields are not looked at.
func (g *generator) value(s *apiextensionsv1.JSONSchemaProps, path ...string) any {
	g.budget--
	if v, ok := g.hint(path); ok {
		return v
	}
	if len(s.Enum) > 0 {
		return strings.Trim(string(s.Enum[g.n(len(s.Enum))].Raw), `"`)
	}
	switch s.Type {
	case "object":
		return g.object(s, path)
	case "array":
		list := []any{}
		for range g.length(s.MinItems, s.MaxItems) {
			list = append(list, g.value(s.Items.Schema, append(path, "[]")...))
		}
		return list
	case "string":
		return g.text(s)
	case "integer":
		low, high := int64(0), int64(math.MaxInt32)
		if s.Format == "int64" {
			high = math.MaxInt64
		}
		if s.Minimum != nil {
			low = int64(*s.Minimum)
		}
		if s.Maximum != nil {
			high = int64(*s.Maximum)
		}
		return pick(g, low, high, min(low+1, high), min(max(low, 80), high))
	case "boolean":
		return g.chance(50)
	}
	if s.XIntOrString {
		return pick[any](g, 0, 1, "50%", "http")
	}
	return map[string]any{}
}

func (g *generator) object(s *apiextensionsv1.JSONSchemaProps, path []string) any {
	out := map[string]any{}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		// What decides which of the others may be set comes first.
		if slices.Contains(s.Required, name) || g.budget > 0 && g.chance(g.likely(name)) {
			p := s.Properties[name]
			out[name] = g.value(&p, append(slices.Clone(path), name)...)
		}
	}
	g.choose(s, out, path)
	g.agree(out, path)
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for range g.n(3) {
			out[pick(g, "example.com/key", "k", "a.b-c/d_e.F", strings.Repeat("x", 63))] = g.value(s.AdditionalProperties.Schema, append(slices.Clone(path), "*")...)
		}
	}
	return out
}

// likely is how often, in percent, an optional field is set.
func (g *generator) likely(name string) int {
	switch name {
	case "parentRefs", "rules", "backendRefs", "matches", "path":
		return 85
	case "filters", "hostnames":
		return 40
	case "addresses", "infrastructure", "sectionName", "options", "extensionRef", "namespace", "parametersRef", "timeouts":
		return min(g.density, 10)
	}
	return g.density
}

// agree makes fields agree that would hardly ever do so by chance.
func (g *generator) agree(out map[string]any, path []string) {
	last := path[len(path)-1]
	switch {
	case last == "[]" && path[len(path)-2] == "listeners":
		out["name"] = fmt.Sprint(pick(g, "l", "l", "l", "x.y-", strings.Repeat("n", 200)), g.n(4))
		protocol := out["protocol"]
		if protocol == "TCP" || protocol == "UDP" {
			delete(out, "hostname")
		}
		if protocol != "HTTPS" && protocol != "TLS" {
			delete(out, "tls")
		} else if out["tls"] == nil {
			out["tls"] = map[string]any{"mode": pick(g, "Terminate", "Terminate", "Passthrough"), "certificateRefs": []any{map[string]any{"name": pick(g, "cert", "cert", "cert", "cert", "cert", "broken", "missing")}}}
		}
	case last == "backendRef" || last == "[]" && path[len(path)-2] == "backendRefs":
		if out["kind"] == nil || out["kind"] == "Service" {
			if out["port"] = pick(g, 80, 80, 443); g.odd() {
				out["port"] = pick(g, 81, 65535, 1)
			}
		}
	case last == "[]" && path[len(path)-2] == "parentRefs" && g.chance(80):
		clear(out)
		out["name"], out["namespace"] = "a", "default"
		if g.chance(20) {
			out["sectionName"] = fmt.Sprint("l", g.n(4))
		}
	case last == "allowedRoutes" && g.chance(80):
		clear(out)
		out["namespaces"] = map[string]any{"from": "All"}
	case last == "validation" && out["caCertificateRefs"] != nil:
		delete(out, "wellKnownCACertificates")
	case last == "validation":
		out["wellKnownCACertificates"] = "System"
	}
}

// choose keeps, of what a type chooses from, what it chooses: in a filter, the filter.
func (g *generator) choose(s *apiextensionsv1.JSONSchemaProps, out map[string]any, path []string) {
	kind, _ := out["type"].(string)
	property, ok := s.Properties["type"]
	if kind == "" || !ok {
		return
	}
	for _, raw := range property.Enum {
		name := member(strings.Trim(string(raw.Raw), `"`))
		p, ok := s.Properties[name]
		if !ok {
			continue
		}
		delete(out, name)
		if name == member(kind) {
			out[name] = g.value(&p, append(slices.Clone(path), name)...)
		}
	}
}

// member is the field that a type chooses: CORS is cors, URLRewrite is urlRewrite.
func member(kind string) string {
	for _, upper := range []string{"CORS", "URL"} {
		if rest, ok := strings.CutPrefix(kind, upper); ok {
			return strings.ToLower(upper) + rest
		}
	}
	return strings.ToLower(kind[:1]) + kind[1:]
}

// length is that of a list: mostly short, seldom the longest.
func (g *generator) length(least, most *int64) int {
	low, high := 0, 4
	if least != nil {
		low = int(*least)
	}
	if most != nil {
		high = int(*most)
	}
	if g.budget < 0 {
		return low
	}
	return max(low, min(high, pick(g, low, 1, 1, 2, 2, 3, pick(g, 5, high))))
}

// text is a string that the schema's pattern and lengths admit.
func (g *generator) text(s *apiextensionsv1.JSONSchemaProps) string {
	least, most := 0, 40
	if s.MinLength != nil {
		least = int(*s.MinLength)
	}
	if s.MaxLength != nil {
		most = int(*s.MaxLength)
	}
	if s.Pattern != "" {
		long := g.chance(10)
		re, err := syntax.Parse(s.Pattern, syntax.Perl)
		if err != nil {
			return ""
		}
		var b strings.Builder
		g.match(&b, re, long, most)
		return b.String()
	}
	if usual := pick(g, "a", "b", "x-a"); !g.odd() && len(usual) >= least && len(usual) <= most {
		return usual
	}
	switch text := pick(g, "", "a", "/", "*", "%", `%REQ(:path)%`, "ä€😀", "a b\tc", "\x00", "\r\n\r\n", "$1", `\1`, "(", "[", "{}", `"`, "\u202e", "//", "-", "_", ".", "..", "0", "null", strings.Repeat("x", most)); {
	case utf8.RuneCountInString(text) < least:
		return strings.Repeat("a", least)
	case utf8.RuneCountInString(text) > most:
		return strings.Repeat("é", most)
	default:
		return text
	}
}

// match writes something that a regular expression matches, of at most so many bytes if
// that can be.
func (g *generator) match(b *strings.Builder, re *syntax.Regexp, long bool, most int) {
	repeat := func(low, high int) {
		n := low
		if high < 0 {
			high = low + 3
			if long {
				high = most
			}
		}
		if high > low {
			n += g.n(high - low + 1)
		}
		for i := 0; i < n && (i < low || b.Len() < most-1); i++ {
			g.match(b, re.Sub[0], long, most)
		}
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		at := g.n(len(re.Rune)/2) * 2
		low, high := re.Rune[at], min(re.Rune[at+1], 0x10ffff)
		b.WriteRune(low + rune(g.n(int(min(high-low, 200))+1)))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteString(pick(g, "a", "é", "😀", " "))
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			g.match(b, sub, long, most)
		}
	case syntax.OpAlternate:
		g.match(b, re.Sub[g.n(len(re.Sub))], long, most)
	case syntax.OpStar:
		repeat(0, -1)
	case syntax.OpPlus:
		repeat(1, -1)
	case syntax.OpQuest:
		repeat(0, 1)
	case syntax.OpRepeat:
		repeat(re.Min, re.Max)
	default:
	}
}
