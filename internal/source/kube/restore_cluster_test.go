//go:build cluster

package kube_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/kube"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/test/cluster/apiserver"
)

// After etcd was restored from a backup the API has another history, in which positions are
// used again that proxies have seen in the one before.
func TestARestoreFromABackupBeginsAnEpoch(t *testing.T) {
	r := newRig(t)
	halted := func(change func()) {
		t.Helper()
		r.stop(apiserver.APIServer, apiserver.Etcd)
		change()
		r.start()
	}
	r.define()
	r.kubectl(gateway+"---"+route, "create", "-f", "-")

	start := func() *follower {
		epochs, err := kube.EpochIn(r.Config, types.NamespacedName{Namespace: "default", Name: "trust"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := kube.New(kube.Config{Client: r.Config, Epochs: epochs})
		if err != nil {
			t.Fatal(err)
		}
		return follow(t, s)
	}
	f := start()
	web := object.Key{Kind: object.Gateway, Namespace: "default", Name: "web"}
	shop := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "shop"}
	later := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "later"}
	anew := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "anew"}
	f.wait("the route", f.has(shop))
	data, backup := r.Dir+"/etcd", t.TempDir()+"/etcd"
	halted(func() {
		if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
	})
	r.kubectl(strings.Replace(route, "shop", "later", 1), "create", "-f", "-")
	r.kubectl("", "delete", "gateway", "web")
	f.wait("the route that is in no backup", f.has(later))
	f.wait("the Gateway's end", f.hasNot(web))
	var seen watermark.Mark
	f.wait("a position", func() bool { seen = f.mark; return seen.Epoch == 0 && len(seen.Positions) > 0 })

	halted(func() {
		if err := os.RemoveAll(data); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
			t.Fatal(err)
		}
	})
	f.wait("another epoch", func() bool { return f.mark.Epoch == 1 })
	f.wait("the end of what is in no backup", f.hasNot(later))
	f.wait("the Gateway of the backup", f.has(web))
	f.mu.Lock()
	if f.objects[shop] == nil {
		t.Error("what was there all the time has gone")
	}
	if f.mark.Behind(seen) {
		t.Errorf("position %v is behind %v, which proxies have seen", f.mark, seen)
	}
	f.mu.Unlock()
	r.kubectl(strings.Replace(route, "shop", "anew", 1), "create", "-f", "-")
	f.wait("a route that was written after", f.has(anew))

	// Others know the epoch from where it is kept, also when somebody takes that away.
	if got := r.kubectl("", "get", "configmap", "trust", "-o", `jsonpath={.metadata.annotations.config\.aether\.io/epoch}`); got != "1" {
		t.Errorf("kept is epoch %q", got)
	}
	second := start()
	second.wait("the epoch, in another replica", func() bool { return second.synced && second.mark.Epoch == 1 })
	r.kubectl("", "delete", "configmap", "trust")
	f.wait("an end of complaints", f.content)
	f.wait("the epoch, kept again", func() bool {
		out, err := r.Kubectl(t.Context(), "", "get", "configmap", "trust", "-o", `jsonpath={.metadata.annotations.config\.aether\.io/epoch}`)
		return err == nil && out == "1"
	})
}
