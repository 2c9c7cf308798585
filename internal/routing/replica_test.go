package routing

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// replica is what someone holds who only ever saw deltas.
type replica struct {
	t        *testing.T
	graph    *Graph
	worlds   map[scope.Scope]map[resource.Name]*resource.Resource
	statuses map[object.Key]Status
}

func testConfig() Config {
	return Config{
		ControllerName:   "config.aether.io/gateway-controller",
		ReleaseNamespace: "aether-system",
		Address:          "127.0.0.1",
		PublishAddresses: []string{"127.0.0.1"},
		PortOffset:       10000,
		AccessLogPath:    "/logs/access.log",
		TrustFile:        "/trust.pem",
		System:           meshconfig.System{OTelEnabled: true, TraceSampleRate: 0.1},
		SharedMemory:     DefaultSharedMemory,
	}
}

func newReplica(t *testing.T) *replica {
	t.Helper()
	return newReplicaOf(t, testConfig())
}

func newReplicaOf(t *testing.T, c Config) *replica {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{t: t, graph: g, worlds: map[scope.Scope]map[resource.Name]*resource.Resource{}, statuses: map[object.Key]Status{}}
}

func (r *replica) apply(changes ...object.Change) Delta { return r.take(r.graph.Apply(changes)) }

// take replays a delta and checks that it says nothing twice, nothing unordered and
// nothing that was so already.
func (r *replica) take(d Delta) Delta {
	r.t.Helper()
	for s, w := range d.Worlds {
		if w.IsZero() {
			r.t.Errorf("scope %s: an empty delta was handed out", s)
		}
		if r.worlds[s] == nil {
			r.worlds[s] = map[resource.Name]*resource.Resource{}
		}
		if !slices.IsSortedFunc(w.Changed, func(a, b *resource.Resource) int { return a.Name.Compare(b.Name) }) || !slices.IsSortedFunc(w.Removed, resource.Name.Compare) {
			r.t.Errorf("scope %s: the delta is not sorted", s)
		}
		for _, c := range w.Changed {
			if old := r.worlds[s][c.Name]; old != nil && cmp.Equal(old, c, same) {
				r.t.Errorf("scope %s: %s was handed out unchanged", s, c.Name)
			}
			r.worlds[s][c.Name] = c
		}
		for _, n := range w.Removed {
			if r.worlds[s][n] == nil {
				r.t.Errorf("scope %s: %s was removed and was not there", s, n)
			}
			delete(r.worlds[s], n)
		}
		if len(r.worlds[s]) == 0 {
			delete(r.worlds, s)
		}
	}
	for i, s := range d.Statuses {
		if i > 0 && d.Statuses[i-1].Key.Compare(s.Key) >= 0 {
			r.t.Errorf("statuses are not sorted: %s, %s", d.Statuses[i-1].Key, s.Key)
		}
		if s.Value == nil {
			delete(r.statuses, s.Key)
			continue
		}
		if old, there := r.statuses[s.Key]; there && cmp.Equal(old, s, same) {
			r.t.Errorf("the status of %s was handed out unchanged", s.Key)
		}
		r.statuses[s.Key] = s
	}
	return d
}

// same compares scopes by value, and payloads as what they are.
var same = cmp.Options{
	cmp.Comparer(func(a, b scope.Scope) bool { return a == b }),
	cmp.Comparer(bytes.Equal),
}

// state is everything a replica holds, for comparison.
func (r *replica) state() any {
	worlds := map[string]map[string]*resource.Resource{}
	for s, w := range r.worlds {
		worlds[s.String()] = map[string]*resource.Resource{}
		for n, res := range w {
			worlds[s.String()][n.String()] = res
		}
	}
	statuses := map[string]Status{}
	for k, s := range r.statuses {
		statuses[k.String()] = s
	}
	return []any{worlds, statuses}
}

// pair is a certificate with its key, both PEM.
type pair struct{ cert, key []byte }

var pairs = sync.OnceValue(func() [2]pair {
	var out [2]pair
	for i := range out {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)),
			Subject:      pkix.Name{CommonName: "test"},
			NotBefore:    time.Now().Add(-time.Hour),
			NotAfter:     time.Now().Add(time.Hour),
			DNSNames:     []string{"*.example.com"},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			panic(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			panic(err)
		}
		out[i] = pair{
			cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		}
	}
	return out
})

func change(o object.Object, k object.Kind) object.Change {
	return object.Change{Key: object.Key{Kind: k, Namespace: o.GetNamespace(), Name: o.GetName()}, Object: o}
}
