package crd

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

const route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop, labels: {a: b}}
spec:
  parentRefs: [{name: gw}]
  hostnames: [web.example.com]
  rules:
  - matches:
    - path: {value: /a}
      headers: [{name: x, value: "1"}]
    backendRefs:
    - {name: web, port: 8080}
    - {name: web2, port: 8080, weight: 3}
`

func validator(t testing.TB) *Validator {
	t.Helper()
	v, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	var u unstructured.Unstructured
	if err := utilyaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return &u
}

func TestAdmitAppliesTheSchemasDefaultsAndKeepsMetadata(t *testing.T) {
	u := parse(t, route)
	unknown, errs := validator(t).Admit(t.Context(), u, nil)
	if len(unknown) != 0 || len(errs) != 0 {
		t.Fatalf("unknown %v, errors %v", unknown, errs)
	}
	want := parse(t, `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop, labels: {a: b}}
spec:
  parentRefs: [{name: gw, group: gateway.networking.k8s.io, kind: Gateway}]
  hostnames: [web.example.com]
  rules:
  - matches:
    - path: {value: /a, type: PathPrefix}
      headers: [{name: x, value: "1", type: Exact}]
    backendRefs:
    - {name: web, port: 8080, group: "", kind: Service, weight: 1}
    - {name: web2, port: 8080, group: "", kind: Service, weight: 3}
`)
	if d := cmp.Diff(want.Object, u.Object); d != "" {
		t.Error(d)
	}
}

func TestAdmit(t *testing.T) {
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(route) }
	cases := map[string]struct {
		in, old string
		unknown []string
		errors  []string // each a part of one error, in order
	}{
		"an unknown field is pruned and named": {
			in:      edit("{value: /a}", "{value: /a, kind: Exact}", "spec:", "sepc: {}\nspec:"),
			unknown: []string{"sepc", "spec.rules[0].matches[0].path.kind"},
		},
		"a value outside an enumeration is named by its path": {
			in:     edit("{value: /a}", "{value: /a, type: Glob}"),
			errors: []string{`spec.rules[0].matches[0].path.type: Unsupported value: "Glob"`},
		},
		"a value of the wrong type is named by its path": {
			in:     edit("[{name: gw}]", "gw"),
			errors: []string{"spec.parentRefs: Invalid value"},
		},
		"a number out of range is named by its path": {
			in:     edit("weight: 3", "weight: 1000001"),
			errors: []string{"spec.rules[0].backendRefs[1].weight: Invalid value"},
		},
		"a missing field is named by its path": {
			in:     edit("{name: gw}", "{sectionName: http}"),
			errors: []string{"spec.parentRefs[0].name: Required value"},
		},
		"a CEL rule is checked": {
			in:     edit("{value: /a}", "{value: a}"),
			errors: []string{"must be an absolute path"},
		},
		"a CEL rule of a whole list is checked": {
			in:     edit("[{name: gw}]", "[{name: gw}, {name: gw}]"),
			errors: []string{"spec.parentRefs"},
		},
		"two entries of a map list with one key are refused": {
			in:     edit(`[{name: x, value: "1"}]`, `[{name: x, value: "1"}, {name: x, value: "2"}]`),
			errors: []string{"spec.rules[0].matches[0].headers[1]: Duplicate value"},
		},
		"a status is dropped, right or wrong": {in: route + "status: {parents: 7}\n"},
		"a null field gets the default":       {in: edit("{value: /a}", "{value: /a, type: null}")},
		"a beta version is served":            {in: edit("k8s.io/v1", "k8s.io/v1beta1")},
		"a version that is not served is refused": {
			in:     edit("k8s.io/v1", "k8s.io/v1alpha2"),
			errors: []string{`apiVersion: Unsupported value: "gateway.networking.k8s.io/v1alpha2": supported values: "gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1beta1"`},
		},
		"a kind without a CRD is refused": {
			in:     edit("HTTPRoute", "HTTPRouter"),
			errors: []string{`apiVersion: Invalid value: "gateway.networking.k8s.io/v1": has no kind HTTPRouter`},
		},
		"a transition rule compares with the old object": {
			old:    "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: x}\nspec: {controllerName: a.io/b}",
			in:     "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: x}\nspec: {controllerName: a.io/c}",
			errors: []string{`spec.controllerName: Invalid value: "a.io/c": Value is immutable`},
		},
		"a transition rule is not checked on creation": {
			in: "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: x}\nspec: {controllerName: a.io/c}",
		},
		"a MeshConfig keeps fields that its schema does not know": {
			in: "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxy: {future: 1}}",
		},
		"GatewayParameters name a field that their schema does not know": {
			in:      "apiVersion: config.aether.io/v1\nkind: GatewayParameters\nmetadata: {name: p}\nspec: {moed: Shared}",
			unknown: []string{"spec.moed"},
		},
	}
	v := validator(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var old *unstructured.Unstructured
			if c.old != "" {
				old = parse(t, c.old)
			}
			unknown, errs := v.Admit(t.Context(), parse(t, c.in), old)
			if d := cmp.Diff(c.unknown, unknown); d != "" {
				t.Error("unknown fields", d)
			}
			if len(errs) != len(c.errors) {
				t.Fatalf("errors %q, want %q", errs, c.errors)
			}
			for i, want := range c.errors {
				if !strings.Contains(errs[i].Error(), want) {
					t.Errorf("error %q, want %q", errs[i], want)
				}
			}
		})
	}
}

func TestAdmitKeepsAMeshConfigsUnknownFields(t *testing.T) {
	u := parse(t, "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default}\nspec: {proxy: {future: 1}}")
	if _, errs := validator(t).Admit(t.Context(), u, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	if got, _, _ := unstructured.NestedInt64(u.Object, "spec", "proxy", "future"); got != 1 {
		t.Errorf("spec.proxy.future is %v after admission, want 1", got)
	}
}

func TestUsesOldOnlyWhereSomeRuleDoes(t *testing.T) {
	v := validator(t)
	for kind, want := range map[string]bool{"GatewayClass": true, "HTTPRoute": false, "Gateway": false} {
		u := parse(t, "apiVersion: gateway.networking.k8s.io/v1\nkind: "+kind)
		if got := v.UsesOld(u); got != want {
			t.Errorf("UsesOld(%s) = %v, want %v", kind, got, want)
		}
	}
}

func TestEveryServedVersionCompiles(t *testing.T) {
	v := validator(t)
	for gvk, lazy := range v.versions {
		ver, err := lazy()
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		lib, err := ver.library()
		if err != nil {
			t.Errorf("%s: %v", gvk, err)
			continue
		}
		if lib.schema == nil || lib.values.schema == nil {
			t.Errorf("%s: no schema", gvk)
		}
	}
	if got := v.Served(schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "ReferenceGrant"}); !cmp.Equal(got, []string{"v1", "v1beta1"}) {
		t.Errorf("served versions of ReferenceGrant: %v", got)
	}
}

func TestNewSaysWhatToDoWithoutTheGatewayAPI(t *testing.T) {
	if !strings.Contains(ErrMissing.Error(), "make generate") || errors.Unwrap(ErrMissing) != nil {
		t.Errorf("ErrMissing says %q", ErrMissing)
	}
}

func BenchmarkAdmitHTTPRoute(b *testing.B) {
	v, u := validator(b), parse(b, route)
	if _, errs := v.Admit(b.Context(), u.DeepCopy(), nil); len(errs) > 0 {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		v.Admit(b.Context(), u.DeepCopy(), nil)
	}
}
