package webhook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
)

func TestVerdicts(t *testing.T) {
	type verdict struct {
		Allowed  bool
		Message  string
		Causes   []string // field: message
		Warnings []string
	}
	invalid := object("shop", "default", `{"proxy":{"traceSampleRate":2,"tracingEnabled":"x","accessLogSuccessSampleRate":101}}`)
	refused := verdict{
		Message: `spec.proxy.accessLogSuccessSampleRate: must be less than or equal to 100, got 101; spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got 2; spec.proxy.tracingEnabled: want true or false, got "x"`,
		Causes: []string{
			"spec.proxy.accessLogSuccessSampleRate: must be less than or equal to 100, got 101",
			"spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got 2",
			`spec.proxy.tracingEnabled: want true or false, got "x"`,
		},
	}
	named := "metadata.name: want \"default\", got \"mine\""
	for name, tc := range map[string]struct {
		sys       meshconfig.System
		op        admissionv1.Operation
		sub       string
		obj, old  []byte
		release   string // spec
		want      verdict
		asRelease bool // the object is the release namespace's
	}{
		"a good one is made":                  {sys: on, op: "CREATE", obj: object("shop", "default", `{"proxy":{"traceSampleRate":0.5}}`), want: verdict{Allowed: true}},
		"a good one that has no spec":         {sys: on, op: "CREATE", obj: object("shop", "default", `null`), want: verdict{Allowed: true}},
		"each violation is named":             {sys: on, op: "CREATE", obj: invalid, want: refused},
		"in an update too":                    {sys: on, op: "UPDATE", obj: invalid, old: object("shop", "default", `{}`), want: refused},
		"another name":                        {sys: on, op: "CREATE", obj: object("shop", "mine", `{}`), want: verdict{Message: named, Causes: []string{named}}},
		"under the other name of a field":     {sys: on, op: "CREATE", obj: object("shop", "default", `{"proxy":{"trace_sample_rate":-1}}`), want: verdict{Message: "spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got -1", Causes: []string{"spec.proxy.traceSampleRate: must be greater than or equal to 0 and less than or equal to 1, got -1"}}},
		"a bad one may lose a finalizer":      {sys: on, op: "UPDATE", obj: invalid, old: invalid, want: verdict{Allowed: true, Warnings: refused.Causes}},
		"a bad one may become a good one":     {sys: on, op: "UPDATE", obj: object("shop", "default", `{}`), old: invalid, want: verdict{Allowed: true}},
		"a deletion is nothing to judge":      {sys: on, op: "DELETE", old: invalid, want: verdict{Allowed: true}},
		"a status is nothing to judge":        {sys: on, op: "UPDATE", sub: "status", obj: invalid, want: verdict{Allowed: true}},
		"what is unknown is told":             {sys: on, op: "CREATE", obj: object("shop", "default", `{"proxy":{"accessLogEnabled":true},"mesh":{"mtls":1}}`), want: verdict{Allowed: true, Warnings: []string{"spec.mesh is not known here and has no effect", "spec.proxy.accessLogEnabled is not known here and has no effect; is it spec.proxy.accessLogsEnabled?"}}},
		"what has no effect is told":          {op: "CREATE", obj: object("shop", "default", `{"proxy":{"traceSampleRate":0.5}}`), want: verdict{Allowed: true, Warnings: []string{"spec.proxy.traceSampleRate has no effect: tracing is off, by system config"}}},
		"as the release namespace has it":     {sys: on, op: "CREATE", release: "{proxy: {tracingEnabled: false}}", obj: object("shop", "default", `{"proxy":{"traceSampleRate":0.5}}`), want: verdict{Allowed: true, Warnings: []string{"spec.proxy.traceSampleRate has no effect: tracing is off, by MeshConfig aether-system/default"}}},
		"the release's object as it is to be": {sys: on, op: "UPDATE", release: "{proxy: {tracingEnabled: false}}", asRelease: true, obj: object("aether-system", "default", `{"proxy":{"traceSampleRate":0.5}}`), want: verdict{Allowed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, Config{System: tc.sys, Release: func() *configv1.MeshConfig { return load(t, tc.release) }})
			in := review(tc.op, tc.obj, tc.old)
			in.Request.SubResource = tc.sub
			if tc.asRelease {
				in.Request.Namespace = "aether-system"
			}
			answer := r.ask(in)
			got := verdict{Allowed: answer.Allowed, Warnings: answer.Warnings}
			if answer.Result != nil {
				got.Message = answer.Result.Message
				if answer.Result.Code != 422 || answer.Result.Reason != metav1.StatusReasonInvalid || answer.Result.Details.Name != "default" {
					t.Errorf("refused with %+v", answer.Result)
				}
				for _, c := range answer.Result.Details.Causes {
					got.Causes = append(got.Causes, c.Field+": "+c.Message)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			result := resultAllowed
			switch {
			case !tc.want.Allowed:
				result = resultDenied
			case len(tc.want.Warnings) > 0:
				result = resultWarned
			}
			if n := r.count(result); n != 1 {
				t.Errorf("%v reviews are counted as %s", n, result)
			}
		})
	}
}

func load(t *testing.T, spec string) *configv1.MeshConfig {
	t.Helper()
	if spec == "" {
		return nil
	}
	c, err := meshconfig.Load([]byte("apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: aether-system}\nspec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// However many unknown fields there are and however they are written, warnings are few, short
// and printable: an API server drops others without a word.
func TestWarningsAreBounded(t *testing.T) {
	fields := map[string]any{"a\n\"b\x1b": 1, strings.Repeat("é", 400): 2}
	for i := range 100 {
		fields[fmt.Sprintf("field%03d", i)] = i
	}
	spec, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	got := start(t, Config{System: on}).ask(review("CREATE", object("shop", "default", string(spec)), nil))
	if !got.Allowed || len(got.Warnings) != maxWarnings+1 || got.Warnings[maxWarnings] != "and 87 more warnings" {
		t.Errorf("%v, %d warnings, the last is %q", got.Allowed, len(got.Warnings), got.Warnings[len(got.Warnings)-1])
	}
	all := bounded([]string{"spec.a\n\"b\x1b is not known", strings.Repeat("é", 400), "\xff"})
	for _, w := range slices.Concat(got.Warnings, all) {
		if len(w) > 256 || !utf8.ValidString(w) || strings.ContainsAny(w, "\n\x1b") {
			t.Errorf("%q", w)
		}
	}
}

func FuzzReview(f *testing.F) {
	for _, spec := range []string{"{}", "7", `{"proxy":{"traceSampleRate":2}}`, `{"proxy":{"x":1}}`, `{"proxy":null}`} {
		for _, op := range []admissionv1.Operation{"CREATE", "UPDATE", "DELETE", ""} {
			body, err := json.Marshal(review(op, object("shop", "default", spec), nil))
			if err != nil {
				f.Fatal(err)
			}
			f.Add(body)
		}
	}
	f.Add([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"x"}}`))
	j := judge{namespace: "aether-system", release: func() *configv1.MeshConfig { return nil }}
	f.Fuzz(func(t *testing.T, body []byte) {
		answer, result, err := j.review(body)
		if (err == nil) != (result != resultMalformed) {
			t.Fatalf("%s, %v", result, err)
		}
		if err != nil {
			return
		}
		var in, out admissionv1.AdmissionReview
		if err := json.Unmarshal(answer, &out); err != nil || out.Response == nil {
			t.Fatalf("answered %s: %v", answer, err)
		}
		if err := json.Unmarshal(body, &in); err != nil || in.Request.UID != out.Response.UID {
			t.Fatalf("%s is answered %s", body, answer)
		}
		if !out.Response.Allowed && (out.Response.Result == nil || out.Response.Result.Message == "") {
			t.Fatalf("refused without a reason: %s", answer)
		}
	})
}
