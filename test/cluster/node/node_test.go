package node

import (
	"encoding/json"
	"net/netip"
	"testing"

	"sigs.k8s.io/yaml"

	"aether.io/aether/test/cluster/machine"
)

func TestFilesAreWhatTheirReadersParse(t *testing.T) {
	v := values{
		Config: Config{
			Machine: machine.In("/node-1"), Name: "node-1", Address: netip.MustParseAddr("192.0.2.1"),
			Pods: netip.MustParsePrefix("198.18.1.0/24"), AllPods: netip.MustParsePrefix("198.18.0.0/16"), DNS: netip.MustParseAddr("192.0.2.53"),
		},
		CA: "/ca", Cert: "/cert", Key: "/key", SandboxImage: SandboxImage,
	}
	for name, parse := range map[string]func([]byte, any) error{
		"kubelet.yaml":    func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) },
		"kube-proxy.yaml": func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) },
		"pods.conflist":   json.Unmarshal,
	} {
		text, err := render(name, v)
		if err != nil {
			t.Fatal(err)
		}
		var content map[string]any
		if err := parse([]byte(text), &content); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
