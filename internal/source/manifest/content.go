package manifest

import (
	"encoding/json"
	"errors"
	"unicode/utf8"

	goyaml "go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// read returns what a document says, as JSON and decoded. Lines in its error are the file's.
func (c chunk) read() (js []byte, value any, err error) {
	if err := bounded(c.text); err != nil {
		return nil, nil, err
	}
	if value, ok := direct(c.text); ok {
		if js, err = json.Marshal(value); err == nil {
			return js, value, nil
		}
	}
	if js, err = yaml.YAMLToJSONStrict(c.text); err != nil {
		return nil, nil, shiftLines(err, c.line)
	}
	value, err = fromJSON(js)
	return js, value, err
}

// fromJSON reads JSON as an API server does: integers are integers, no field comes twice.
func fromJSON(js []byte) (value any, err error) {
	twice, err := kjson.UnmarshalStrict(js, &value, kjson.DisallowDuplicateFields)
	if err != nil || len(twice) > 0 {
		return nil, errors.Join(append(twice, err)...)
	}
	return value, nil
}

// direct decodes a document without a way through JSON, if it holds nothing but what both
// mean the same by: texts, truths, integers, and objects with texts for keys. The rest, and
// whatever is wrong, is for that way, which converts and explains.
func direct(text []byte) (value any, ok bool) {
	if goyaml.UnmarshalStrict(text, &value) != nil {
		return nil, false
	}
	return asJSON(value)
}

func asJSON(v any) (any, bool) {
	switch v := v.(type) {
	case nil, bool:
		return v, true
	case string:
		return v, utf8.ValidString(v)
	case int:
		return int64(v), true
	case []any:
		for i := range v {
			item, ok := asJSON(v[i])
			if !ok {
				return nil, false
			}
			v[i] = item
		}
		return v, true
	case map[any]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			name, isText := key.(string)
			field, ok := asJSON(value)
			if !ok || !isText || !utf8.ValidString(name) {
				return nil, false
			}
			out[name] = field
		}
		return out, true
	}
	return nil, false
}
