package bootstrap_test

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/envoy/bootstrap"
)

var update = flag.Bool("update", false, "rewrite the golden")

func config() bootstrap.Config {
	return bootstrap.Config{NodeID: "proxy-1", Cluster: "shared", XDSSocket: "/run/aether/xds.sock", AdminSocket: "/run/aether/admin.sock"}
}

func TestTheBootstrapIsThis(t *testing.T) {
	got, err := bootstrap.New(config())
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/bootstrap.out.json"
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("differs from %s (-want +got, -update rewrites it):\n%s", file, diff)
	}
	for range 20 {
		if again, _ := bootstrap.New(config()); !bytes.Equal(again, got) {
			t.Fatal("two bootstraps of one config differ")
		}
	}
}

func TestAConfigThatCannotWorkIsRefused(t *testing.T) {
	tests := map[string]struct {
		change func(*bootstrap.Config)
		want   string
	}{
		"no node id":             {func(c *bootstrap.Config) { c.NodeID = "" }, "bootstrap: node id"},
		"no cluster":             {func(c *bootstrap.Config) { c.Cluster = "" }, "bootstrap: cluster"},
		"a relative socket":      {func(c *bootstrap.Config) { c.XDSSocket = "xds.sock" }, "bootstrap: xds socket"},
		"no admin socket":        {func(c *bootstrap.Config) { c.AdminSocket = "" }, "bootstrap: admin socket"},
		"a path past 107 bytes":  {func(c *bootstrap.Config) { c.XDSSocket = "/" + strings.Repeat("x", 107) }, "bootstrap: xds socket"},
		"one socket for both":    {func(c *bootstrap.Config) { c.AdminSocket = c.XDSSocket }, "bootstrap: admin socket"},
		"a node id with a space": {func(c *bootstrap.Config) { c.NodeID = "a b" }, "bootstrap: node id"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := config()
			tt.change(&c)
			if _, err := bootstrap.New(c); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, want %s…", err, tt.want)
			}
		})
	}
}
