//go:build cluster

package configmap_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/test/cluster/apiserver"
)

// partRights is what the chart gives, and get.
const partRights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: part, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [part], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: part, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: part}
subjects: [{kind: User, name: part, apiGroup: rbac.authorization.k8s.io}]
`

func TestAPartIsOursByItsKeysAndNothingElseIs(t *testing.T) {
	server := apiserver.Start(t)
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := server.Kubectl(t.Context(), input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl(partRights, "create", "-f", "-")
	client := rest.CopyConfig(server.Config)
	client.Impersonate.UserName = "part"
	p, err := configmap.NewPart(configmap.Config{Client: client, Namespace: "default", Name: "part"}, func(key string) bool { return strings.HasPrefix(key, "our-") })
	if err != nil {
		t.Fatal(err)
	}
	look := func(want configmap.State) configmap.State {
		t.Helper()
		got, err := p.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(configmap.State{}, "Version", "UID")); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		return got
	}
	replace := func(was configmap.State, text map[string]string) configmap.State {
		t.Helper()
		got, err := p.Replace(t.Context(), was, text)
		if err != nil {
			t.Fatal(err)
		}
		if now := look(configmap.State{Text: text, Foreign: got.Foreign}); now.Version != got.Version {
			t.Errorf("it has version %s, and it was told to have %s", now.Version, got.Version)
		}
		return got
	}

	now := look(configmap.State{})
	now = replace(now, map[string]string{"our-a": "1", "our-b": "2"})
	if fields := kubectl("", "get", "configmap", "part", "--show-managed-fields", "-o", "jsonpath={.metadata.managedFields[*].manager} {.metadata.managedFields[*].operation}"); fields != "aether-controller Apply" {
		t.Errorf("it is managed by %s", fields)
	}

	// What others write under their keys stays; under ours it goes, whoever has the fields.
	kubectl("", "patch", "configmap", "part", "--type=merge", "-p", `{"data":{"their-c":"33","our-b":"by hand","our-d":"stray"},"binaryData":{"our-e":"/w=="}}`)
	kubectl("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: part, namespace: default}\ndata: {our-a: theirs, our-f: theirs}\n", "apply", "--server-side", "--force-conflicts", "--field-manager=other", "-f", "-")
	if _, err := p.Replace(t.Context(), now, map[string]string{"our-a": "1"}); !errors.Is(err, configmap.ErrMoved) {
		t.Errorf("a write over one that was not seen: %v", err)
	}
	now = look(configmap.State{Text: map[string]string{"our-a": "theirs", "our-b": "by hand", "our-d": "stray", "our-f": "theirs"}, Amiss: []string{"our-e"}, Foreign: len("their-c") + len("33")})
	now = replace(now, map[string]string{"our-a": "1", "our-e": "5"})
	if now.Foreign != len("their-c")+len("33") {
		t.Errorf("%d bytes are left of theirs", now.Foreign)
	}
	now = replace(now, map[string]string{})
	if got := kubectl("", "get", "configmap", "part", "-o", "jsonpath={.data}"); got != `{"their-c":"33"}` {
		t.Errorf("it has %s", got)
	}

	// One that was deleted meanwhile is not taken for what is there now.
	kubectl("", "delete", "configmap", "part")
	if _, err := p.Replace(t.Context(), now, map[string]string{"our-a": "1"}); !errors.Is(err, configmap.ErrMoved) {
		t.Errorf("a write to what was deleted: %v", err)
	}
	now = look(configmap.State{})

	// As much as may be fits, with whose it is.
	large := map[string]string{}
	for i := range 5000 {
		large[fmt.Sprintf("our-%058d", i)] = strings.Repeat("x", 130)
	}
	now = replace(now, large)
	kubectl("", "patch", "configmap", "part", "--type=merge", "-p", `{"immutable":true}`)
	now, err = p.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Replace(t.Context(), now, map[string]string{"our-a": "1"}); err == nil || errors.Is(err, configmap.ErrMoved) || !strings.Contains(err.Error(), "write ConfigMap default/part: ") {
		t.Errorf("a write to what is immutable: %v", err)
	}
}
