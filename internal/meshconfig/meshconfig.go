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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
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
	c, name, fields, err := read(js)
	switch {
	case err != nil:
		return nil, err
	case name != "":
		return nil, errors.New("read MeshConfig: " + name)
	case len(fields) > 0:
		return nil, &Invalid{Fields: fields}
	}
	return c, nil
}

// Judge reads one whole MeshConfig, JSON as an API server sends it, and says all that is
// wrong with it at once, one sentence for each field that begins with its path: the name
// first, then the spec in the order of the paths. The MeshConfig is nil if anything is. An
// error means that the bytes are no MeshConfig at all. Its metadata is not read, nor its status.
func Judge(object []byte) (c *configv1.MeshConfig, wrong []string, err error) {
	in, name, err := open(object)
	if err != nil {
		return nil, nil, err
	}
	c = &configv1.MeshConfig{TypeMeta: in.TypeMeta}
	var fields []configv1.FieldError
	if in.hasSpec() {
		c.Spec, c.UnknownFields, fields = decode(in.Spec)
	}
	if name != "" {
		wrong = append(wrong, name)
	}
	for i := range fields {
		wrong = append(wrong, fields[i].Error())
	}
	if len(wrong) > 0 {
		return nil, wrong, nil
	}
	return c, nil, nil
}

// document is what is looked at of an object before all of it is read.
type document struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec json.RawMessage `json:"spec"`
}

func (d document) hasSpec() bool { return len(d.Spec) > 0 && string(d.Spec) != "null" }

// open looks at an object in JSON. What is wrong with its name is in name.
func open(js []byte) (in document, name string, err error) {
	if err := kjson.UnmarshalCaseSensitivePreserveInts(js, &in); err != nil {
		return in, "", fmt.Errorf("read MeshConfig: %w", err)
	}
	if want := configv1.GroupVersion().String(); in.APIVersion != want || in.Kind != configv1.KindMeshConfig {
		return in, "", fmt.Errorf("read MeshConfig: want %s %s, got %.64q %.64q", want, configv1.KindMeshConfig, in.APIVersion, in.Kind)
	}
	if in.Metadata.Name != configv1.MeshConfigName {
		name = fmt.Sprintf("metadata.name: want %q, got %.253q", configv1.MeshConfigName, in.Metadata.Name)
	}
	return in, name, nil
}

// read reads an object from JSON. What is wrong with its name is in name, what is wrong with
// its spec in fields; c has no spec then.
func read(js []byte) (c *configv1.MeshConfig, name string, fields []configv1.FieldError, err error) {
	in, name, err := open(js)
	if err != nil {
		return nil, "", nil, err
	}
	if in.hasSpec() {
		if _, _, fields = decode(in.Spec); len(fields) > 0 {
			return nil, name, fields, nil
		}
	}
	c = &configv1.MeshConfig{}
	if err := json.Unmarshal(js, c); err != nil {
		return nil, "", nil, fmt.Errorf("read MeshConfig: %w", err)
	}
	return c, name, nil, nil
}

// Parse reads a spec alone, YAML or JSON, as Format wrote it, and validates it. unknown
// lists the paths of fields that were left out. What is wrong is an *Invalid. No content
// is an error, so that a file that was cut short never means "inherit everything".
func Parse(data []byte) (spec *configv1.MeshConfigSpec, unknown []string, err error) {
	js, err := toJSON(data)
	if err != nil {
		return nil, nil, fmt.Errorf("read mesh config spec: %w", err)
	}
	spec, unknown, fields := decode(js)
	if len(fields) > 0 {
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
