// Package meshconfig is the one reader and the one judge of mesh configuration, used by
// admission, reconciliation and files alike. Bytes or objects come in; specs, effective
// values and errors with the path of each field go out. It watches nothing, stores
// nothing and applies nothing.
package meshconfig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
)

// Invalid says what is wrong with a MeshConfig, field by field, in the order of the paths.
type Invalid struct {
	Fields []configv1.FieldError // at least one; paths from the spec
}

func (e *Invalid) Error() string {
	lines := make([]string, len(e.Fields))
	for i := range e.Fields {
		lines[i] = e.Fields[i].Error()
	}
	return strings.Join(lines, "; ")
}

// Load reads one whole MeshConfig, YAML or JSON, and validates its spec. Its unknown
// fields are in UnknownFields. What is wrong with the spec is an *Invalid.
func Load(data []byte) (*configv1.MeshConfig, error) {
	js, err := toJSON(data)
	if err != nil {
		return nil, fmt.Errorf("read MeshConfig: %w", err)
	}
	c := &configv1.MeshConfig{}
	if err := json.Unmarshal(js, c); err != nil {
		return nil, invalid(err)
	}
	if want := configv1.GroupVersion().String(); c.APIVersion != want || c.Kind != configv1.KindMeshConfig {
		return nil, fmt.Errorf("read MeshConfig: want %s %s, got %q %q", want, configv1.KindMeshConfig, c.APIVersion, c.Kind)
	}
	if c.Name != configv1.MeshConfigName {
		return nil, fmt.Errorf("read MeshConfig: metadata.name: want %q, got %q", configv1.MeshConfigName, c.Name)
	}
	if fields := Validate(c.Spec); len(fields) > 0 {
		return nil, &Invalid{Fields: fields}
	}
	return c, nil
}

// Parse reads a spec alone, YAML or JSON, as Format wrote it, and validates it. unknown
// lists the paths of fields that were left out. What is wrong is an *Invalid. No content
// is an error, so that a file that was cut short never means "inherit everything".
func Parse(data []byte) (spec *configv1.MeshConfigSpec, unknown []string, err error) {
	js, err := toJSON(data)
	if err != nil {
		return nil, nil, fmt.Errorf("read mesh config spec: %w", err)
	}
	spec, unknown, err = configv1.DecodeSpec(js)
	if err != nil {
		return nil, nil, invalid(err)
	}
	if fields := Validate(spec); len(fields) > 0 {
		return nil, nil, &Invalid{Fields: fields}
	}
	return spec, unknown, nil
}

// Format writes a spec as YAML that Parse reads back to the same spec, presence kept. A
// nil spec is written like an empty one. The bytes of one spec are always the same.
func Format(spec *configv1.MeshConfigSpec) ([]byte, error) {
	js, err := protojson.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("write mesh config spec: %w", err)
	}
	return yaml.JSONToYAML(js)
}

// Merge is base with the fields that over sets replaced, each field by itself. It is
// associative, nil sets nothing, and neither argument is changed or shared.
func Merge(base, over *configv1.MeshConfigSpec) *configv1.MeshConfigSpec {
	out := &configv1.MeshConfigSpec{}
	proto.Merge(out, base)
	proto.Merge(out, over)
	return out
}

// toJSON converts the one document in data. A second document is refused: it would
// otherwise be dropped in silence. So is a key written twice.
func toJSON(data []byte) ([]byte, error) {
	docs := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	var one []byte
	for {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		js, err := yaml.YAMLToJSONStrict(doc)
		if err != nil {
			return nil, err
		}
		switch {
		case bytes.Equal(js, []byte("null")): // nothing but comments
		case one != nil:
			return nil, errors.New("more than one document")
		default:
			one = js
		}
	}
	if one == nil {
		return nil, errors.New("no content (an empty spec is written {})")
	}
	return one, nil
}

// invalid turns the joined field errors of a decode into one *Invalid.
func invalid(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if field, is := errors.AsType[*configv1.FieldError](err); is {
			return &Invalid{Fields: []configv1.FieldError{*field}}
		}
		return fmt.Errorf("read MeshConfig: %w", err)
	}
	out := &Invalid{}
	for _, e := range joined.Unwrap() {
		if field, is := errors.AsType[*configv1.FieldError](e); is {
			out.Fields = append(out.Fields, *field)
		}
	}
	return out
}
