// Package fuzz_test makes sets of objects that the Gateway API's definitions admit, as
// strange as they may be, and asserts that they become what Envoy takes, or conditions
// that say why not: nothing panics, and nothing that one object says is refused at the
// cost of another.
//
// Objects are made from the definitions themselves, so that every field that there is,
// and every one that will be, is tried.
package fuzz_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
	"aether.io/aether/internal/test/admit"
)

const (
	controller = "config.aether.io/gateway-controller"
	release    = "aether-system"
)

// generator makes a set of objects out of bytes, and out of chance when they are used up.
type generator struct {
	tb          testing.TB
	definitions map[string]definition
	server      *admit.Server
	data        []byte
	rest        *rand.Rand
	ports       []int32 // of listeners
	density     int     // percent of the optional fields that are set
	wild        int     // percent of the values that are odd, where a usual one would do
	budget      int     // of values in an object: lists get short when it is spent
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

func newGenerator(tb testing.TB, server *admit.Server, all map[string]definition) *generator {
	return &generator{tb: tb, definitions: all, server: server, ports: []int32{80, 443, 8080, 1, 65535}}
}

// n is a number from 0 to n-1.
func (g *generator) n(n int) int {
	if n <= 1 {
		return 0
	}
	if len(g.data) == 0 {
		return g.rest.IntN(n)
	}
	b := int(g.data[0])
	g.data = g.data[1:]
	if n > 256 && len(g.data) > 0 {
		b = b<<8 | int(g.data[0])
		g.data = g.data[1:]
	}
	return b % n
}

func (g *generator) chance(percent int) bool { return g.n(100) < percent }

func (g *generator) odd() bool { return g.chance(g.wild) }

func pick[T any](g *generator, list ...T) T { return list[g.n(len(list))] }

// set makes the objects that the bytes stand for. Equal bytes give equal objects.
func (g *generator) set(data []byte) []object.Object {
	var seed uint64
	for _, b := range data {
		seed = seed*31 + uint64(b)
	}
	g.data, g.rest = data, newRand(seed)
	out := map[object.Key]object.Object{}
	add := func(raw map[string]any) {
		if o := g.admit(raw); o != nil {
			out[admit.Key(o)] = o
		}
	}
	for _, raw := range g.fixed() {
		add(raw)
	}
	for i, kind := range g.kinds() {
		d, ok := g.definitions[kind]
		if !ok || !slices.Contains(object.Kinds(), object.Kind(kind)) {
			continue
		}
		g.density, g.wild, g.budget = pick(g, 10, 30, 30, 60, 90), pick(g, 0, 0, 1, 5, 40), 400
		raw := map[string]any{"apiVersion": d.apiVersion, "kind": d.kind, "metadata": g.metadata(d), "spec": g.value(d.spec, kind)}
		if i == 0 { // what most of the others refer to
			raw["metadata"] = map[string]any{"name": "a", "namespace": "default"}
		}
		add(raw)
	}
	keys := make([]object.Key, 0, len(out))
	for k := range out {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, object.Key.Compare)
	objects := make([]object.Object, len(keys))
	for i, k := range keys {
		objects[i] = out[k]
		objects[i].SetGeneration(int64(1 + g.n(3)))
		objects[i].SetCreationTimestamp(metav1.Unix(1700000000+int64(g.n(3)), 0))
	}
	return objects
}

// kinds are those of the objects that the definitions make, in the order in which they are made.
func (g *generator) kinds() []string {
	list := []string{"Gateway", "HTTPRoute", "HTTPRoute", "HTTPRoute"}
	for range g.n(6) {
		list = append(list, pick(g, "HTTPRoute", "HTTPRoute", "HTTPRoute", "Gateway", "ListenerSet", "BackendTLSPolicy", "ReferenceGrant", "GatewayParameters", "GatewayClass", "MeshConfig"))
	}
	return list
}

func (g *generator) metadata(d definition) map[string]any {
	m := map[string]any{"name": pick(g, "a", "a", "a", "b", "b", "c", "d", "e", "a.b-c.d", strings.Repeat("n", 253), strings.Repeat("n.", 126)+"n")}
	if d.namespaced {
		m["namespace"] = g.namespace()
	}
	if d.kind == "MeshConfig" {
		m["name"] = "default"
	}
	return m
}

func (g *generator) namespace() string {
	return pick(g, "default", "default", "default", "default", "default", "default", "default", "other", release, strings.Repeat("s", 63))
}

// hint gives the values that let objects refer to each other, most of the time.
func (g *generator) hint(path []string) (any, bool) {
	last, at := path[len(path)-1], strings.Join(path, ".")
	often := func(v any) (any, bool) { return v, !g.odd() }
	switch {
	case strings.HasSuffix(at, "gatewayClassName"):
		return often("ours")
	case strings.HasSuffix(at, "controllerName"):
		return often(controller)
	case strings.HasSuffix(at, "[].port") && strings.HasPrefix(at, "Gateway.listeners"), strings.HasPrefix(at, "ListenerSet") && last == "port":
		return int64(pick(g, g.ports...)), true
	case last == "port":
		return often(int64(pick(g, 80, 80, 80, 81, 443)))
	case last == "protocol":
		return often(pick(g, "HTTP", "HTTP", "HTTP", "HTTP", "HTTPS", "HTTPS", "HTTPS", "HTTPS", "TLS", "TCP"))
	case last == "group" || last == "kind":
		return g.hintKind(at, last)
	case last == "namespace":
		return often(g.namespace())
	case last == "name" && strings.HasSuffix(at, "HTTPRoute.rules.[].name"):
		return fmt.Sprint("r", g.n(1000)), g.chance(80)
	case last == "sectionName" || strings.HasSuffix(at, "listeners.[].name"):
		return fmt.Sprint("l", g.n(4)), g.chance(80)
	case last == "name" && strings.Contains(at, "ertificateRef"):
		if g.odd() {
			return pick(g, "ca", "broken", "missing"), true
		}
		return often(pick(g, "cert", "cert", "ca"))
	case last == "name" && (strings.Contains(at, "backendRef") || strings.Contains(at, "targetRefs")):
		if g.odd() {
			return pick(g, "headless", "external", "missing", "a"), true
		}
		return often(pick(g, "s0", "s1", "s2"))
	case last == "name" && (strings.Contains(at, "arentRef") || strings.Contains(at, "parametersRef")):
		return often(pick(g, "a", "a", "a", "a", "a", "b", "c"))
	case strings.HasSuffix(at, "namespaces.from"):
		return "All", g.chance(50)
	case !g.odd() && (last == "hostname" || strings.HasSuffix(at, "hostnames.[]")):
		if strings.Contains(at, "equestRedirect") || strings.Contains(at, "urlRewrite") || strings.Contains(at, "validation") {
			return "b.example.com", true
		}
		return pick(g, "a.example.com", "*.example.com", "*.a.example.com", "x.a.example.com"), true
	case last == "replaceFullPath" || last == "replacePrefixMatch":
		return pick(g, "/", "/x", "/x/y/", "/~!$&'()*+,;=:@%20"), !g.odd()
	case strings.HasSuffix(at, "path.value") && !g.odd():
		return pick(g, "/", "/a", "/a/", "/a/b", "/~!$&'()*+,;=:@", "/"+strings.Repeat("a", 1023), "/a%20b", "/..."), true
	case last == "value" && !g.odd():
		return pick(g, "1", "a", strings.Repeat("v", 1024), "%", "%%", "%PROTOCOL", "$", "%REQ(x)%", "\"a\""), true
	case strings.HasSuffix(at, "allowOrigins.[]") && !g.odd():
		return pick(g, "https://a.example.com", "http://*.example.com", "https://a.example.com:8443"), true
	case last == "hostname" || strings.HasSuffix(at, "hostnames.[]"):
		return pick(g, "a.example.com", "*.example.com", "example.com", "*.com", "com", "*.a.example.com", strings.Repeat("a", 63)+".example.com", "*."+strings.Repeat("a.", 120)+"com", "1.2.3.4", "0", "xn--bcher-kva.example"), g.chance(80)
	case strings.HasSuffix(at, "path.value"):
		return pick(g, "/", "/a", "/a/", "/a/b", "/%41", "/~!$&'()*+,;=:@", "/"+strings.Repeat("a", 1023), "/a%20b", "/;x", "/.well-known", "/...", "", "a", "[", "(a|b", ".*", "/(?i)x", `/\d+`, `\C`, "/é", strings.Repeat("(a?){50}", 60), "(a{1000}){1000}", "^/a$", "/\x00", "/a\nb", "(?P<n>a)", "(?s).", `\pL`), true
	case last == "value" && strings.Contains(at, "headers"):
		return pick(g, "1", "a", strings.Repeat("v", 4096), "[", "(?i)a", "%REQ(x)%", "%", "%%", "é", "a\tb", " ", "\x00", "a\r\nb: c", "%START_TIME(%s)%", "%PROTOCOL", "$", "😀"), g.chance(80)
	}
	return nil, false
}

func (g *generator) hintKind(at, last string) (any, bool) {
	group, kind := "", "Service"
	switch {
	case strings.Contains(at, "parametersRef"):
		group, kind = "config.aether.io", "GatewayParameters"
	case strings.Contains(at, "parentRef"):
		group, kind = "gateway.networking.k8s.io", pick(g, "Gateway", "Gateway", "Gateway", "ListenerSet")
	case strings.Contains(at, "caCertificateRefs"):
		kind = "ConfigMap"
	case strings.Contains(at, "ertificateRef"):
		kind = "Secret"
	case strings.Contains(at, "allowedRoutes"):
		group, kind = "gateway.networking.k8s.io", "HTTPRoute"
	case strings.Contains(at, ".from."):
		group, kind = "gateway.networking.k8s.io", pick(g, "HTTPRoute", "Gateway", "ListenerSet", "BackendTLSPolicy")
	case strings.Contains(at, ".to."):
		kind = pick(g, "Service", "Secret", "ConfigMap")
	case strings.Contains(at, "extensionRef"):
		return nil, false
	}
	if last == "group" {
		return group, !g.odd()
	}
	return kind, !g.odd()
}

// admit gives the object as a server would keep it. What the server finds fault with is
// taken out until it finds none; nil if that leaves nothing.
func (g *generator) admit(raw map[string]any) object.Object {
	for range 60 {
		text, err := json.Marshal(raw)
		if err != nil {
			return nil
		}
		o, findings, err := g.server.Find(context.Background(), text)
		if err != nil {
			return nil
		}
		if o != nil {
			return o
		}
		faulty := false
		for _, f := range slices.Backward(findings) {
			if f.Severity == manifest.Refused && repair(raw, f) {
				faulty = true
			}
		}
		if !faulty {
			return nil
		}
	}
	return nil
}

// repair takes out what a finding is about, and reports whether there was something to.
func repair(raw map[string]any, f manifest.Finding) bool {
	parts := strings.FieldsFunc(strings.ReplaceAll(f.Path, "[", ".["), func(r rune) bool { return r == '.' })
	if strings.Contains(f.Message, "Required value") && len(parts) > 0 {
		parts = parts[:len(parts)-1]
	}
	if len(parts) < 2 {
		return false
	}
	var at any = raw
	var set func(any)
	for i, part := range parts {
		final := i == len(parts)-1
		if index, ok := strings.CutPrefix(part, "["); ok {
			list, isList := at.([]any)
			n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if !isList || err != nil || n >= len(list) {
				return final && false
			}
			if final {
				set(slices.Delete(list, n, n+1))
				return true
			}
			at, set = list[n], func(v any) { list[n] = v }
			continue
		}
		fields, isObject := at.(map[string]any)
		if !isObject {
			return false
		}
		if _, there := fields[part]; !there {
			return false
		}
		if list, isList := fields[part].([]any); final && isList && len(list) > 1 {
			fields[part] = list[:len(list)-1]
			return true
		}
		if final {
			delete(fields, part)
			return true
		}
		at, set = fields[part], func(v any) { fields[part] = v }
	}
	return false
}

func describe(objects []object.Object) string {
	var b strings.Builder
	for _, o := range objects {
		text, _ := json.Marshal(o)
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String()
}
