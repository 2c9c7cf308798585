package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/source"
)

var update = flag.Bool("update", false, "write what the tests find to testdata")

// outputs are what -o json prints, by command, and the details of standalone's lines; every
// field of them has a value.
func outputs() map[string]any {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	name := resource.Name{TypeURL: "type.googleapis.com/envoy.config.cluster.v3.Cluster", Name: "default/shop/80"}
	return map[string]any{
		"analyze": []analyze.Finding{{
			Code: code.MeshUnknown, Severity: code.Error, Object: "MeshConfig/aether-system/default", Path: "spec.proxy.accessLogEnabled", File: "mesh.yaml", Line: 7, Message: "is not known",
		}},
		"explain":    explained([]code.Code{{ID: code.MeshUnknown, Severity: code.Error, Title: "t", Meaning: "m", Mend: "n", Scope: code.Cluster}}),
		"config-get": []meshValue{{Namespace: "shop", Named: meshconfig.Named{Path: "proxy.traceSampleRate", Value: 0.5, From: "shop/default"}}},
		"config-diff": difference{
			Changes: []meshChange{{
				Namespace: "shop", Live: meshconfig.Named{Path: "proxy.emitStatsPod", Value: false, From: meshconfig.FromDefault},
				File: meshconfig.Named{Path: "proxy.emitStatsPod", Value: true, From: "shop/default"},
			}},
			Proxies: []string{"proxy"},
		},
		"get-processes": []process{{Name: "envoy", PID: 7, Running: true, Log: "/state/logs/envoy.log"}},
		"get-proxies": []fleet.Proxy{{
			Peer: fleet.Peer{
				ID: "proxy", PodUID: "uid", Node: "node", Identity: "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy",
				Addr: "127.0.0.1:1", Serial: "0a", NotAfter: at, EnvoyVersion: "1.40.0", BuildVersion: "v1",
			},
			Scope: scope.SharedPool(), ScopeName: "shared", Connected: true, Since: at, Version: "0b", Current: true,
			Laggard: fleet.LagPending, LaggardFrom: at, Pending: []resource.Name{name},
			Refused: []resource.Refusal{{Name: name, Hash: resource.Hash{1, 2}, Detail: "no"}}, BoundPorts: []uint32{8080},
			Status: fleet.Status{
				EnvoyVersion: "1.40.0", SVIDSerial: "0a", IssuerKeyID: "0c", SVIDNotAfter: at, MountedRoots: []string{"0d"}, PushedRoots: []string{"0d"},
				Checks: []fleet.Check{{Name: "envoy", State: "Ready", Reason: "Connected", Since: at}},
			},
		}},
		"get-resources": []inspect.Resource{{Scope: "shared", Type: "Cluster", Name: "default/shop/80", Hash: "0e", Bytes: 3, Origin: []string{"Service/default/shop"}}},
		"get-identity": inspect.Identity{
			TrustDomain: "cluster.local", CA: inspect.CA{KeyID: "0c", Subject: "CN=Aether", NotAfter: at}, Roots: []string{"0d"},
			Issued: []inspect.Issuance{{At: at, Identity: "spiffe://x", Pod: "proxy", Node: "node", Serial: "0a", NotAfter: at, Result: "issued", Reason: "none"}},
		},
		"standalone-change": changelog.Entry{
			At: at, Cause: []string{"a.yaml"}, Objects: []string{"HTTPRoute/default/shop"}, Quarantined: []string{"HTTPRoute/default/shop"}, Refused: []string{"Cluster default/shop/80"},
			Start: true, Changed: 1, Removed: 2, Statuses: 3, Compile: time.Millisecond, LiveAfter: time.Second, State: changelog.Quarantined, Proxies: 1,
		},
		"standalone-problem": source.Problem{Severity: source.Refused, File: "a.yaml", Document: 2, Object: "Secret/default/s", Path: "data", Message: "is required", Since: at},
		"standalone-state":   health.State{State: health.Degraded, Reason: health.Disconnected, Since: at, Version: "0b", Checks: []fleet.Check{}},
		"status":             []inspect.StatusDocument{{Kind: "Gateway", Namespace: "default", Name: "web", Generation: 2, Status: json.RawMessage(`{"conditions":[]}`)}},
	}
}

func TestJSONIsWhatProgramsRelyOn(t *testing.T) {
	key := regexp.MustCompile(`"([^"]*)":`)
	camel := regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)
	for name, v := range outputs() {
		var got bytes.Buffer
		if err := printJSON(&got, v); err != nil {
			t.Fatal(err)
		}
		for _, k := range key.FindAllStringSubmatch(got.String(), -1) {
			if !camel.MatchString(k[1]) {
				t.Errorf("%s: key %q is not lowerCamel", name, k[1])
			}
		}
		golden := filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(want), got.String()); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestAProxyReadsAsItWasWritten(t *testing.T) {
	want := outputs()["get-proxies"].([]fleet.Proxy)
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got []fleet.Proxy
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	got[0].Scope = want[0].Scope // it is told as text
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b scope.Scope) bool { return a == b })); d != "" {
		t.Error(d)
	}
}
