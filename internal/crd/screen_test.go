package crd

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// usual are objects as people write them.
func usual() []string {
	return []string{route, `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: gw, sectionName: https}, {name: gw, sectionName: http}]
  rules:
  - name: first
    matches:
    - {method: GET, path: {type: Exact, value: /a}, queryParams: [{name: q, value: "1"}]}
    - {path: {type: RegularExpression, value: "/[a-z]+"}}
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: b}], remove: [c]}}
    - {type: URLRewrite, urlRewrite: {hostname: a.example.com, path: {type: ReplaceFullPath, replaceFullPath: /}}}
    backendRefs: [{name: web, port: 80, filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: a, value: b}]}}]}]
    timeouts: {request: 10s, backendRequest: 1s}
  - filters: [{type: RequestRedirect, requestRedirect: {scheme: https, statusCode: 301, port: 443}}]
`, `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: gw, namespace: shop}
spec:
  gatewayClassName: coxswain
  infrastructure: {labels: {a: b}, parametersRef: {group: config.aether.io, kind: GatewayParameters, name: p}}
  listeners:
  - {name: http, protocol: HTTP, port: 80}
  - name: https
    protocol: HTTPS
    port: 443
    hostname: "*.example.com"
    tls: {mode: Terminate, certificateRefs: [{name: cert}]}
    allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {a: b}}}, kinds: [{kind: HTTPRoute}]}
`, `
apiVersion: gateway.networking.k8s.io/v1
kind: ListenerSet
metadata: {name: more, namespace: shop}
spec:
  parentRef: {name: gw}
  listeners: [{name: a, protocol: HTTP, port: 8080, hostname: a.example.com}]
`, `
apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: p, namespace: shop}
spec: {routeScopes: PerHost}
`}
}

func TestTheScreenPassesWhatIsUsual(t *testing.T) {
	v := validator(t)
	for _, doc := range usual() {
		u := parse(t, doc)
		ver, err := v.version(u)
		if err != nil {
			t.Fatal(err)
		}
		if lib, err := ver.library(); err != nil || !compare(t, ver, lib, u.Object) {
			t.Errorf("this takes the slow way (%v): %s", err, doc)
		}
	}
}

func TestAScreenIsUsedBySeveralAtOnce(t *testing.T) {
	v := validator(t)
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for _, doc := range usual() {
				u := parse(t, doc)
				ver, err := v.version(u)
				if err != nil || !ver.screen.Pass(u.Object) {
					t.Errorf("does not pass (%v): %s", err, doc)
				}
			}
		})
	}
	running.Wait()
}

// TestTheScreenPassesOnlyWhatTheLibraryPasses makes objects by each schema, good ones and
// ones with a mistake, and admits each with the screen and without.
func TestTheScreenPassesOnlyWhatTheLibraryPasses(t *testing.T) {
	v := validator(t)
	for _, gvk := range slices.SortedFunc(maps.Keys(v.versions), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		t.Run(gvk.Kind+"/"+gvk.Version, func(t *testing.T) {
			ver, err := v.versions[gvk]()
			if err != nil {
				t.Fatal(err)
			}
			lib, err := ver.library()
			if err != nil {
				t.Fatal(err)
			}
			if ver.screen == nil {
				transition(t, v, ver, gvk)
				return
			}
			g := generator{r: rand.New(rand.NewPCG(1, 2)), fitting: map[string][]string{}}
			passed, refused := 0, 0
			try := func(obj map[string]any) {
				// What it does not pass is decided by the library anyway: a sample will do.
				passes := ver.screen.Pass(runtime.DeepCopyJSON(obj))
				if passes || g.chance(3) {
					passes = compare(t, ver, lib, obj)
				}
				if passes {
					passed++
				} else {
					refused++
				}
			}
			for range 50 {
				good := g.resource(lib.schema, gvk)
				try(good)
				for range 5 {
					try(g.spoilt(good))
				}
			}
			for _, doc := range usual() {
				u := parse(t, doc)
				for i := range g.spoils(u.Object) {
					if u.GroupVersionKind() == gvk {
						obj := runtime.DeepCopyJSON(u.Object)
						g.spoils(obj)[i]()
						try(obj)
					}
				}
			}
			t.Logf("%d objects passed the screen, %d did not", passed, refused)
		})
	}
}

// transition checks a version that has no screen, because one of its rules compares with the
// object before: what it admits is what such a rule lets through. GatewayClass is the only one.
func transition(t *testing.T, v *Validator, ver *version, gvk schema.GroupVersionKind) {
	t.Helper()
	if !ver.usesOld || gvk.Kind != "GatewayClass" {
		t.Fatalf("it has no screen, and a rule that compares with the object before: %v", ver.usesOld)
	}
	class := func(controller, description string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "c"}, "spec": map[string]any{"controllerName": controller, "description": description},
		}}
		u.SetGroupVersionKind(gvk)
		return u
	}
	before := class("a.io/b", "one")
	for name, c := range map[string]struct {
		now, old *unstructured.Unstructured
		admitted bool
	}{
		"a new one":                      {class("a.io/b", ""), nil, true},
		"another description":            {class("a.io/b", "two"), before, true},
		"another controller":             {class("a.io/c", "one"), before, false},
		"a controller that is no path":   {class("a", "one"), nil, false},
		"a description that is too long": {class("a.io/b", strings.Repeat("x", 65)), before, false},
	} {
		if _, errs := v.Admit(t.Context(), c.now, c.old); (len(errs) == 0) != c.admitted {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// compare admits copies of obj with the screen and without, and reports whether it passed.
func compare(t *testing.T, ver *version, lib *library, obj map[string]any) (passed bool) {
	t.Helper()
	want := runtime.DeepCopyJSON(obj)
	if ver.hasStatus {
		delete(want, "status")
	}
	wantUnknown, wantErrs := lib.admit(t.Context(), want, nil)
	got := runtime.DeepCopyJSON(obj)
	if ver.hasStatus {
		delete(got, "status")
	}
	var unknown []string
	var errs field.ErrorList
	if passed = ver.screen.Pass(got); !passed { // what it leaves behind must not change the verdict
		unknown, errs = lib.admit(t.Context(), got, nil)
	}
	if d := cmp.Diff(fmt.Sprint(wantUnknown, wantErrs), fmt.Sprint(unknown, errs)); d != "" {
		t.Errorf("of %v the screen (passed: %v) says otherwise than the library: %s", obj, passed, d)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("of %v the screen (passed: %v) makes something else: %s", obj, passed, d)
	}
	return passed
}

// generator makes values by schemas.
type generator struct {
	r       *rand.Rand
	fitting map[string][]string // of texts, by pattern
}

var texts = []string{
	"", "a", "web", "a-b", "A", "example.com", "*.example.com", "*", "Service", "Gateway", "Secret", "ConfigMap", "gateway.networking.k8s.io",
	"/", "/a", "/a//b", "/a/../b", "/a/.", "/a%2Fb", "a/b", "a.io/b", "#", "1s", "500ms", "2h", "1x", "10.0.0.1", "::1", "GET", "X-Foo", "x foo",
	"http", "https", "https://a.example.com", "*.a.example.com:80", "80", "é", strings.Repeat("x", 64), strings.Repeat("x", 254), strings.Repeat("x", 5000), strings.Repeat("é", 300), strings.Repeat("/x", 700),
}

func (g *generator) chance(percent int) bool { return g.r.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.r.IntN(len(from))] }

func (g *generator) resource(s *structural.Structural, gvk schema.GroupVersionKind) map[string]any {
	obj := g.object(s)
	u := unstructured.Unstructured{Object: obj}
	u.SetGroupVersionKind(gvk)
	obj["metadata"] = map[string]any{"name": "x", "namespace": "y"}
	delete(obj, "status")
	return obj
}

// value makes a value that fits s, but for its CEL rules.
func (g *generator) value(s *structural.Structural) any {
	if s.Default.Object != nil && g.chance(50) {
		return runtime.DeepCopyJSONValue(s.Default.Object)
	}
	if v := s.ValueValidation; v != nil && len(v.Enum) > 0 {
		return pick(g, v.Enum).Object
	}
	switch s.Type {
	case "object":
		return g.object(s)
	case "array":
		var out []any
		for range g.size(s) {
			out = append(out, g.value(s.Items))
		}
		return out
	case "integer":
		return g.integer(s)
	case "number":
		return g.r.Float64()
	case "boolean":
		return g.chance(50)
	}
	return g.text(s)
}

func (g *generator) object(s *structural.Structural) map[string]any {
	obj := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		prop := s.Properties[name]
		if slices.Contains(s.ValueValidation.Required, name) || g.chance(30) {
			obj[name] = g.value(&prop)
		}
	}
	if more := s.AdditionalProperties; more != nil && more.Structural != nil {
		for range g.r.IntN(3) {
			obj[pick(g, texts)] = g.value(more.Structural)
		}
	}
	return obj
}

func (g *generator) size(s *structural.Structural) int {
	n := g.r.IntN(3)
	if v := s.ValueValidation; v.MinItems != nil {
		n = max(n, int(*v.MinItems))
	}
	return n
}

func (g *generator) integer(s *structural.Structural) int64 {
	least, most := int64(0), int64(70_000)
	if v := s.ValueValidation; v.Minimum != nil {
		least = int64(*v.Minimum)
	}
	if v := s.ValueValidation; v.Maximum != nil {
		most = int64(*v.Maximum)
	}
	return pick(g, []int64{least, most, least + g.r.Int64N(most-least+1)})
}

func (g *generator) text(s *structural.Structural) any {
	v := s.ValueValidation
	key := fmt.Sprint(v.Pattern, v.MinLength, v.MaxLength)
	fits, known := g.fitting[key]
	if !known {
		pattern := regexp.MustCompile(v.Pattern)
		fits = slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
			runes := int64(len([]rune(text)))
			return v.MinLength != nil && runes < *v.MinLength || v.MaxLength != nil && runes > *v.MaxLength || !pattern.MatchString(text)
		})
		g.fitting[key] = fits
	}
	if len(fits) == 0 {
		fits = texts
	}
	return pick(g, fits)
}

// spoilt is a copy of obj with one thing changed somewhere.
func (g *generator) spoilt(obj map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(obj)
	if at := g.spoils(out); len(at) > 0 {
		pick(g, at)()
	}
	return out
}

// spoils are ways to change one thing in the spec of obj, as many and in the same order
// for an equal one.
func (g *generator) spoils(obj map[string]any) []func() {
	var out []func()
	add := func(ways ...func()) { out = append(out, ways...) }
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				add(func() { v[k] = g.junk() }, func() { delete(v, k) }, func() { v["unheard"] = v[k] })
				switch old := v[k].(type) {
				case string:
					text := func() { v[k] = pick(g, texts) }
					add(text, text, text, func() { v[k] = strings.Repeat(old, 300) }, func() { v[k] = "" })
				case int64:
					add(func() { v[k] = old << 20 }, func() { v[k] = -old })
				case []any:
					add(func() { v[k] = old[:0] }, func() { v[k] = append(old, old...) }, func() { v[k] = slices.Repeat(old, 70) })
				}
				visit(v[k])
			}
		case []any:
			for i := range v {
				add(func() { v[i] = g.junk() })
				visit(v[i])
			}
		}
	}
	visit(obj["spec"])
	return out
}

func (g *generator) junk() any {
	return pick(g, []any{nil, pick(g, texts), pick(g, texts), int64(-1), int64(1) << 40, int64(80), 1.5, true, []any{}, []any{nil}, map[string]any{}, map[string]any{"unheard": nil}})
}
