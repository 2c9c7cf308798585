//go:build cluster

package configmap_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/test/cluster/apiserver"
)

// rights is what the chart gives, and get.
const rights = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: memory, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [left], verbs: [create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: memory, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: memory}
subjects: [{kind: User, name: memory, apiGroup: rbac.authorization.k8s.io}]
`

func TestWhatIsSavedIsThereForTheNextAndNoMoreRightsAreNeeded(t *testing.T) {
	server := apiserver.Start(t)
	if _, err := server.Kubectl(t.Context(), rights, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	client := rest.CopyConfig(server.Config)
	client.Impersonate.UserName = "memory"
	open := func(name string) *configmap.Map {
		t.Helper()
		m, err := configmap.New(configmap.Config{Client: client, Namespace: "default", Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	expect := func(want configmap.Content) {
		t.Helper()
		got, err := open("left").Await(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	}
	m := open("left")
	expect(configmap.Content{})
	if err := m.Save(t.Context(), configmap.Content{}); err != nil {
		t.Fatalf("remove what is not there: %v", err)
	}
	for _, c := range []configmap.Content{
		{Text: map[string]string{"a": "b"}, Binary: map[string][]byte{"c": {0xff, 0}}},
		{Text: map[string]string{"d": "e"}},
		{Binary: map[string][]byte{"large": make([]byte, configmap.MaxContent-len("large"))}},
	} {
		if err := m.Save(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		expect(c)
	}
	tooLarge := configmap.Content{Binary: map[string][]byte{"large": make([]byte, configmap.MaxContent)}}
	if err := m.Save(t.Context(), tooLarge); err == nil || !strings.Contains(err.Error(), "ConfigMap default/left") {
		t.Errorf("too much: %v", err)
	}
	if err := m.Save(t.Context(), configmap.Content{}); err != nil {
		t.Fatal(err)
	}
	expect(configmap.Content{})
	if err := open("other").Save(t.Context(), configmap.Content{Text: map[string]string{"a": "b"}}); err == nil {
		t.Error("another ConfigMap was written with these rights")
	}

	// While the API does not answer, it is waited for.
	if err := server.Stop(apiserver.APIServer); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if c, err := m.Await(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without an API there is %v, %v", c, err)
	}
	found := make(chan error, 1)
	go func() { // ends when the API is back
		_, err := m.Await(t.Context())
		found <- err
	}()
	if err := server.StartAll(); err != nil {
		t.Fatal(err)
	}
	if err := server.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-found; err != nil {
		t.Errorf("when it is back: %v", err)
	}
}
