// Package stage turns an example's folder into what a controller is to read. This is
// the one place where what runs differs from what is written:
//
//   - the ports of EndpointSlices become those at which the backends listen;
//   - every GatewayClass gets parameters that say how routes are cut into scopes, or the
//     parameters that it has say it;
//   - objects that a request is sent without are left out;
//   - the Secrets and ConfigMaps that the example asks to have made are added;
//   - a ConfigMap of its own is added that differs each time, so that the controller has
//     something to report even where nothing else differs.
package stage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"aether.io/aether/test/features/example"
)

// parameters is the name of the GatewayParameters that are added.
const parameters = "route-scopes-of-the-test"

// Object is a manifest's object.
type Object map[string]any

// Key is Kind/namespace/name, or Kind/name for what has no namespace.
func (o Object) Key() string {
	kind, _ := o["kind"].(string)
	name, _ := at(o, "metadata", "name").(string)
	if kind == "GatewayClass" || kind == "Namespace" {
		return kind + "/" + name
	}
	namespace, ok := at(o, "metadata", "namespace").(string)
	if !ok {
		namespace = "default"
	}
	return kind + "/" + namespace + "/" + name
}

// Kind is the object's kind.
func (o Object) Kind() string { kind, _ := o["kind"].(string); return kind }

// Objects reads the example's manifests.
func Objects(e *example.Example) ([]Object, error) {
	var out []Object
	for _, name := range slices.Sorted(maps.Keys(e.Manifests)) {
		r := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(e.Manifests[name])))
		for {
			text, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			var o Object
			if err == nil {
				err = yaml.UnmarshalStrict(text, &o)
			}
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", e.Name, name, err)
			}
			if len(o) > 0 {
				out = append(out, o)
			}
		}
	}
	return out, nil
}

// Place is where a backend is to listen.
type Place struct {
	Slice   string // name of the EndpointSlice
	Address string
	Port    int
}

// Places lists where EndpointSlices say that backends are. A slice without an endpoint
// names none, and of several addresses the first counts.
func Places(objects []Object) []Place {
	var out []Place
	for _, o := range objects {
		endpoints, _ := o["endpoints"].([]any)
		if o.Kind() != "EndpointSlice" || len(endpoints) == 0 {
			continue
		}
		name, _ := at(o, "metadata", "name").(string)
		first, _ := endpoints[0].(map[string]any)
		addresses, _ := first["addresses"].([]any)
		if len(addresses) == 0 {
			continue
		}
		address, _ := addresses[0].(string)
		for _, p := range ports(o) {
			if n, ok := p["port"].(float64); ok {
				out = append(out, Place{Slice: name, Address: address, Port: int(n)})
			}
		}
	}
	return out
}

// Change says how what runs is to differ.
type Change struct {
	Scopes  string      // routeScopes, empty: as written
	Ports   map[int]int // of EndpointSlices
	Without []string    // keys of objects
	Serial  int
}

// Text is the objects as they run, as one file.
func Text(objects []Object, made []Object, c Change) (string, error) {
	all := slices.Concat(objects, made)
	for _, key := range c.Without {
		if !slices.ContainsFunc(all, func(o Object) bool { return o.Key() == key }) {
			return "", fmt.Errorf("there is no %s to be without", key)
		}
	}
	added := []Object{{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "serial-of-the-test"},
		"data": map[string]any{"serial": strconv.Itoa(c.Serial)},
	}}
	if c.Scopes != "" {
		added = append(added, Object{
			"apiVersion": "config.aether.io/v1", "kind": "GatewayParameters", "metadata": map[string]any{"name": parameters},
			"spec": map[string]any{"routeScopes": c.Scopes},
		})
	}
	var out bytes.Buffer
	for _, o := range append(added, all...) {
		if slices.Contains(c.Without, o.Key()) {
			continue
		}
		o, err := change(o, c)
		if err != nil {
			return "", err
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			return "", err
		}
		out.WriteString("---\n")
		out.Write(text)
	}
	return out.String(), nil
}

// change returns a copy of the object as it runs.
func change(o Object, c Change) (Object, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, err
	}
	var next Object
	if err := yaml.Unmarshal(text, &next); err != nil {
		return nil, err
	}
	switch next.Kind() {
	case "EndpointSlice":
		for _, p := range ports(next) {
			if n, ok := p["port"].(float64); ok && c.Ports[int(n)] != 0 {
				p["port"] = c.Ports[int(n)]
			}
		}
	case "GatewayClass":
		spec, ok := next["spec"].(map[string]any)
		if ok && c.Scopes != "" && spec["parametersRef"] == nil {
			spec["parametersRef"] = map[string]any{"group": "config.aether.io", "kind": "GatewayParameters", "name": parameters, "namespace": "default"}
		}
	case "GatewayParameters":
		if spec, ok := next["spec"].(map[string]any); ok && c.Scopes != "" {
			spec["routeScopes"] = c.Scopes
		}
	}
	return next, nil
}

func ports(o Object) []map[string]any {
	var out []map[string]any
	list, _ := o["ports"].([]any)
	for _, p := range list {
		if m, ok := p.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// at is the value at a path, nil if there is none.
func at(o Object, path ...string) any {
	var v any = map[string]any(o)
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}
