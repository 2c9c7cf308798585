//go:build cluster

package remote

import (
	"errors"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/apiserver"
)

// Whoever asks is told in one sentence, within the time that a request may take, whichever of the two
// is away.
func TestAnAPIServerInTroubleIsSaidToBe(t *testing.T) {
	server := apiserver.Start(t)
	i, err := New(Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := i.Controllers(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("a sound one: %v, %v", all, err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"etcd is gone", func() error { return server.Stop(apiserver.Etcd) }},
		{"the API server is gone", func() error { return server.Stop(apiserver.APIServer) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		_, err := i.Controllers(t.Context())
		if !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", step.what, err)
			continue
		}
		for _, words := range []string{server.Config.Host, "nothing of the cluster can be asked", "proxies go on serving what they have"} {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v: want %q in it", step.what, err, words)
			}
		}
		t.Logf("%s: %v", step.what, err)
	}
}
