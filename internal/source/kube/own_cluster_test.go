//go:build cluster

package kube_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/kube"
)

func ownClient(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := configv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	gv := configv1.GroupVersion()
	c := rest.CopyConfig(config)
	c.APIPath, c.GroupVersion, c.NegotiatedSerializer = "/apis", &gv, serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// anySpec is a spec of which each field is unset, its zero, or something else.
func anySpec(r *rand.Rand) *configv1.MeshConfigSpec {
	flag := func() *bool { return []*bool{nil, ptr.To(false), ptr.To(true)}[r.IntN(3)] }
	return &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{
		AccessLogsEnabled: flag(), TracingEnabled: flag(), EmitStatsPod: flag(),
		AccessLogSuccessSampleRate: []*uint32{nil, ptr.To[uint32](0), ptr.To(r.Uint32N(101))}[r.IntN(3)],
		TraceSampleRate:            []*float64{nil, ptr.To(0.0), ptr.To(r.Float64()), ptr.To(1.0)}[r.IntN(4)],
	}}
}

// equal compares what is set. That an object without fields is there says nothing.
func equal(a, b *configv1.MeshConfigSpec) bool {
	return proto.Equal(meshconfig.Merge(a, &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{}}), meshconfig.Merge(b, &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{}}))
}

// What is unset stays unset and an explicit zero stays one, whichever way an object is
// written, as a client reads it and as the source does.
func TestPresenceIsKeptThroughTheAPI(t *testing.T) {
	server := newRig(t)
	server.define()
	client := ownClient(t, server.Config)
	s, err := kube.New(kube.Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	r := rand.New(rand.NewPCG(1, 7))
	head := func(ns string) string {
		return fmt.Sprintf(`"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":"default","namespace":%q}`, ns)
	}
	writes := map[string]func(ns string, spec *configv1.MeshConfigSpec) error{
		"typed": func(ns string, spec *configv1.MeshConfigSpec) error {
			now := &configv1.MeshConfig{}
			if err := client.Get().Namespace(ns).Resource("meshconfigs").Name("default").Do(t.Context()).Into(now); err != nil {
				return err
			}
			now.Spec = spec
			now.APIVersion, now.Kind = configv1.GroupVersion().String(), configv1.KindMeshConfig
			return client.Put().Namespace(ns).Resource("meshconfigs").Name("default").Body(now).Do(t.Context()).Error()
		},
		"yaml": func(ns string, spec *configv1.MeshConfigSpec) error {
			text, err := meshconfig.Format(spec)
			if err != nil {
				return err
			}
			now := &configv1.MeshConfig{}
			if err := client.Get().Namespace(ns).Resource("meshconfigs").Name("default").Do(t.Context()).Into(now); err != nil {
				return err
			}
			body := "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: " + ns + ", resourceVersion: '" + now.ResourceVersion + "'}\nspec:\n  " +
				strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ") + "\n"
			return client.Put().Namespace(ns).Resource("meshconfigs").Name("default").SetHeader("Content-Type", "application/yaml").Body([]byte(body)).Do(t.Context()).Error()
		},
		"applied": func(ns string, spec *configv1.MeshConfigSpec) error {
			text, err := protojson.Marshal(spec)
			if err != nil {
				return err
			}
			return client.Patch("application/apply-patch+yaml").Namespace(ns).Resource("meshconfigs").Name("default").
				Param("fieldManager", "test").Param("force", "true").Body([]byte(`{` + head(ns) + `,"spec":` + string(text) + `}`)).Do(t.Context()).Error()
		},
	}
	for ns := range writes {
		server.kubectl("", "create", "namespace", ns)
		if ns == "applied" {
			continue // by applying it
		}
		if err := client.Post().Namespace(ns).Resource("meshconfigs").Body([]byte(`{` + head(ns) + `}`)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		spec := anySpec(r)
		for ns, write := range writes {
			if err := write(ns, spec); err != nil {
				t.Fatalf("%s: %v: %v", ns, spec, err)
			}
			now := &configv1.MeshConfig{}
			if err := client.Get().Namespace(ns).Resource("meshconfigs").Name("default").Do(t.Context()).Into(now); err != nil {
				t.Fatal(err)
			}
			if !equal(spec, now.Spec) {
				t.Fatalf("%s: wrote %v, a client reads %v", ns, spec, now.Spec)
			}
			k := object.Key{Kind: object.MeshConfig, Namespace: ns, Name: "default"}
			f.wait(fmt.Sprintf("%s as %v", ns, spec), func() bool {
				o, is := f.objects[k].(*configv1.MeshConfig)
				return is && o.Generation == now.Generation && equal(spec, o.Spec)
			})
		}
	}
}

// Definitions that let everything in do not keep the others of a kind from being read, when
// a source begins and while it runs; what was in effect stays.
func TestOneObjectThatCannotBeReadIsOne(t *testing.T) {
	server := newRig(t)
	server.define()
	for _, definition := range []string{"meshconfigs.config.aether.io", "gatewayparameters.config.aether.io"} {
		server.kubectl("", "patch", "customresourcedefinition", definition, "--type=json", "-p",
			`[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec","value":{"x-kubernetes-preserve-unknown-fields":true}}]`)
	}
	client := ownClient(t, server.Config)
	put := func(kind, resource, name, spec string) error {
		return client.Patch("application/apply-patch+yaml").Namespace("default").Resource(resource).Name(name).
			Param("fieldManager", "test").Param("force", "true").
			Body([]byte(`{"apiVersion":"config.aether.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + spec + `}`)).Do(t.Context()).Error()
	}
	first, err := kube.New(kube.Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	running := follow(t, first)
	running.wait("a first batch", func() bool { return running.synced })
	mesh := object.Key{Kind: object.MeshConfig, Namespace: "default", Name: "default"}
	bad, good := object.Key{Kind: object.GatewayParameters, Namespace: "default", Name: "bad"}, object.Key{Kind: object.GatewayParameters, Namespace: "default", Name: "good"}
	write := func(kind, resource, name, spec string) {
		t.Helper()
		running.wait("the weakened definition", func() bool { return put(kind, resource, name, spec) == nil })
	}
	write("MeshConfig", "meshconfigs", "default", `{"proxy":{"traceSampleRate":0.5}}`)
	write("GatewayParameters", "gatewayparameters", "good", `{"drainSeconds":7}`)
	running.wait("the MeshConfig", running.has(mesh))
	running.wait("the parameters", running.has(good))
	write("MeshConfig", "meshconfigs", "default", `{"proxy":{"traceSampleRate":"often"}}`)
	write("GatewayParameters", "gatewayparameters", "bad", `{"drainSeconds":"long"}`)
	running.wait("word of the MeshConfig", running.complains(mesh.String(), "spec.proxy.traceSampleRate"))
	running.wait("word of the parameters", running.complains(bad.String(), "spec.drainSeconds"))
	running.mu.Lock()
	if m, is := running.objects[mesh].(*configv1.MeshConfig); !is || m.Spec.GetProxy().GetTraceSampleRate() != 0.5 {
		t.Errorf("in effect is %v", running.objects[mesh])
	}
	running.mu.Unlock()

	second, err := kube.New(kube.Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	later := follow(t, second)
	later.wait("a first batch", func() bool { return later.synced })
	later.wait("the good parameters", later.has(good))
	later.wait("word of the bad ones", later.complains(bad.String(), "spec.drainSeconds"))
	write("MeshConfig", "meshconfigs", "default", `{"proxy":{"traceSampleRate":0.25}}`)
	later.wait("the MeshConfig", func() bool {
		m, is := later.objects[mesh].(*configv1.MeshConfig)
		return is && m.Spec.GetProxy().GetTraceSampleRate() == 0.25
	})
}
