//go:build cluster

package seed_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"aether.io/aether/internal/seed"
	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

const patience = time.Minute

// rights is what the chart gives, and get of ConfigMaps.
const rights = `
apiVersion: v1
kind: Namespace
metadata: {name: aether-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: seeder, namespace: aether-system}
rules:
- {apiGroups: [config.aether.io], resources: [meshconfigs], verbs: [create]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
- {apiGroups: [""], resources: [configmaps], resourceNames: [aether-seeded], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: seeder, namespace: aether-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: seeder}
subjects: [{kind: User, name: seeder, apiGroup: rbac.authorization.k8s.io}]
`

type rig struct {
	*testing.T
	server *apiserver.Server
}

func (r rig) kubectl(input string, args ...string) string {
	r.Helper()
	out, err := r.server.Kubectl(r.Context(), input, args...)
	if err != nil {
		r.Fatal(err)
	}
	return strings.TrimSpace(out)
}

// get is a field of an object of the release namespace, empty if it is not there.
func (r rig) get(kind, name, path string) string {
	out, err := r.server.Kubectl(r.Context(), "", "get", kind, name, "-n", "aether-system", "-o", "jsonpath="+path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

func (r rig) record() string {
	return r.get("configmap", "aether-seeded", `{.data.MeshConfig\.default}`)
}

func (r rig) eventually(what string, is func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			r.Fatalf("%s: not after %s; the record says %q", what, patience, r.record())
		case <-tick.C:
		}
	}
}

// seeder is one of a new leader.
func (r rig) seeder() *seed.Seeder {
	r.Helper()
	client := rest.CopyConfig(r.server.Config)
	client.Impersonate.UserName = "seeder"
	s, err := seed.New(seed.Config{Client: client, Namespace: "aether-system", Name: seed.Name("aether")})
	if err != nil {
		r.Fatal(err)
	}
	return s
}

func TestTheDefaultMeshConfigIsMadeOnce(t *testing.T) {
	r := rig{t, apiserver.Start(t)}
	r.kubectl(rights, "create", "-f", "-")
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	// The definition may come later.
	if err := r.seeder().Seed(t.Context()); err == nil || !strings.Contains(err.Error(), "its definition is not there") || r.record() != "" {
		t.Fatalf("without a definition: %v; the record says %q", err, r.record())
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.seeder().Run(ctx) }() // ends with ctx
	r.kubectl("", "apply", "--server-side", "-f", root+"/charts/crds/templates")
	r.eventually("it is made", func() bool { return r.record() == seed.Made })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run: %v", err)
	}
	if got := r.get("meshconfig", "default", "{.spec}"); got != "{}" {
		t.Errorf("its spec is %s", got)
	}
	if got := r.get("meshconfig", "default", "{.metadata.labels}"); got != `{"app.kubernetes.io/managed-by":"aether-controller"}` {
		t.Errorf("its labels are %s", got)
	}

	// What somebody made of it stays, and what somebody deletes stays deleted, whoever leads.
	again := func() {
		t.Helper()
		version := r.get("configmap", "aether-seeded", "{.metadata.resourceVersion}")
		was := r.get("meshconfig", "default", "{.metadata.resourceVersion}")
		if err := r.seeder().Seed(t.Context()); err != nil {
			t.Error(err)
		}
		if now := r.get("configmap", "aether-seeded", "{.metadata.resourceVersion}"); now != version {
			t.Errorf("the record was written again")
		}
		if now := r.get("meshconfig", "default", "{.metadata.resourceVersion}"); now != was {
			t.Errorf("the MeshConfig was at version %q, and is at %q", was, now)
		}
	}
	r.kubectl("", "patch", "meshconfig", "default", "-n", "aether-system", "--type=merge", "-p", `{"spec":{"proxy":{"tracingEnabled":false}}}`)
	again()
	r.kubectl("", "delete", "meshconfig", "default", "-n", "aether-system")
	again()
	if got := r.get("meshconfig", "default", "{.metadata.name}"); got != "" {
		t.Error("what was deleted is there again")
	}

	// One that was there first is left as it is, also if a leader ended before it could remember.
	r.kubectl("", "delete", "configmap", "aether-seeded", "-n", "aether-system")
	r.kubectl("{apiVersion: config.aether.io/v1, kind: MeshConfig, metadata: {name: default, namespace: aether-system}, spec: {proxy: {tracingEnabled: true}}}", "create", "-f", "-")
	if err := r.seeder().Seed(t.Context()); err != nil || r.record() != seed.Found {
		t.Errorf("%v; the record says %q", err, r.record())
	}
	if got := r.get("meshconfig", "default", "{.spec}"); got != `{"proxy":{"tracingEnabled":true}}` {
		t.Errorf("its spec is %s", got)
	}
}
