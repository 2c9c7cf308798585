// Package manifest reads Kubernetes manifests as an API server would take them: bytes go
// in, typed objects with defaults come out, or findings that name the document and the
// field. Every version that is served comes out as one Go type: the Gateway API's of
// sigs.k8s.io/gateway-api/apis/v1, Aether's of api/config/v1, the core ones of k8s.io/api.
//
// It opens no file, keeps nothing between calls and knows no time: what the server would
// set (uid, resourceVersion, generation, creationTimestamp) is dropped here and set by
// the source, and a status is dropped because it is not the manifest's to say.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"aether.io/aether/internal/object"
)

// Severity says what a finding means for the object.
type Severity string

const (
	// Refused means that what is written is not in effect.
	Refused Severity = "Refused"
	// Warning means that the object is in effect, but not as its author may think.
	Warning Severity = "Warning"
	// Ignored means that the document is of a kind that is not read.
	Ignored Severity = "Ignored"
)

// Finding is one thing to say about a document.
type Finding struct {
	Severity Severity
	Path     string // of the field, as in spec.rules[0].name; empty if it is about the whole
	Message  string // what is wrong, without the path
	Unknown  bool   // what is wrong is that the field is not known
}

// Document is one object as it is written in a file.
type Document struct {
	Number   int        // place in the file, from 1; the items of a List share it
	Key      object.Key // zero if it is no object that is read; Findings then say why
	Raw      []byte     // the object as JSON
	Findings []Finding
	Nameless bool // it has neither an apiVersion nor a kind: perhaps it was never meant to be an object

	content map[string]any // Raw decoded; Decode consumes it
}

// Ignored reports whether a document without a key is merely of a kind that is not read.
func (d *Document) Ignored() bool {
	return !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Severity != Ignored })
}

// SyntaxError is a file that cannot be read as a whole.
type SyntaxError struct {
	Document int // the first one that cannot be read, from 1
	Err      error
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("document %d: %v", e.Document, e.Err) }

func (e *SyntaxError) Unwrap() error { return e.Err }

// ErrEmpty means that a file holds no object at all. That is taken for a file that is
// being written: to remove objects, remove their documents or the file.
var ErrEmpty = errors.New("holds no document; remove the file to remove its objects")

// Parse splits YAML (documents between lines of ---) and finds out which object each
// document is. The items of a List are documents. Its error is a *SyntaxError, or ErrEmpty.
func Parse(data []byte) ([]Document, error) {
	var docs []Document
	number := 0
	for _, chunk := range split(data) {
		js, value, err := chunk.read()
		if err != nil {
			return nil, &SyntaxError{Document: number + 1, Err: err}
		}
		if bytes.Equal(js, []byte("null")) { // nothing, or only comments
			continue
		}
		number++
		if docs, err = expand(docs, number, js, value); err != nil {
			return nil, err
		}
	}
	if number == 0 {
		return nil, ErrEmpty
	}
	return docs, nil
}

// ParseJSON is Parse for a stream of JSON objects.
func ParseJSON(data []byte) ([]Document, error) {
	var docs []Document
	stream := json.NewDecoder(bytes.NewReader(data))
	for number := 1; ; number++ {
		var js json.RawMessage
		err := stream.Decode(&js)
		if errors.Is(err, io.EOF) && number > 1 {
			return docs, nil
		}
		if errors.Is(err, io.EOF) {
			return nil, ErrEmpty
		}
		if err != nil {
			return nil, &SyntaxError{Document: number, Err: err}
		}
		value, err := fromJSON(js)
		if err != nil {
			return nil, &SyntaxError{Document: number, Err: err}
		}
		if docs, err = expand(docs, number, js, value); err != nil {
			return nil, err
		}
	}
}

// expand appends the object that value is, or the items of the List; js is the same as JSON.
func expand(docs []Document, number int, js []byte, value any) ([]Document, error) {
	fields, ok := value.(map[string]any)
	if !ok {
		return nil, &SyntaxError{Document: number, Err: errors.New("is not an object with apiVersion and kind")}
	}
	items, isList := listItems(fields)
	if !isList {
		return append(docs, identify(Document{Number: number, Raw: js, content: fields})), nil
	}
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return nil, &SyntaxError{Document: number, Err: fmt.Errorf("items[%d] is not an object", i)}
		}
		raw, err := json.Marshal(fields)
		if err != nil {
			return nil, &SyntaxError{Document: number, Err: err}
		}
		docs = append(docs, identify(Document{Number: number, Raw: raw, content: fields}))
	}
	return docs, nil
}

// listItems returns the items of a v1 List, or of a typed list such as HTTPRouteList.
func listItems(fields map[string]any) ([]any, bool) {
	kind, _ := fields["kind"].(string)
	element, isList := strings.CutSuffix(kind, "List")
	if !isList {
		return nil, false
	}
	apiVersion, _ := fields["apiVersion"].(string)
	group := groupOf(apiVersion)
	if _, known := lookup(group, element); element != "" && !known {
		return nil, false
	}
	items, ok := fields["items"].([]any)
	return items, ok || fields["items"] == nil
}

type chunk struct {
	text []byte
	line int // number of lines before it
}

// split cuts at YAML's document markers. A directive (%YAML) stands before the first
// marker and is no document.
func split(data []byte) []chunk {
	var out []chunk
	start, startLine, line := 0, 0, 0
	cut := func(end int) {
		if text := data[start:end]; len(bytes.TrimSpace(text)) > 0 && text[0] != '%' {
			out = append(out, chunk{text: text, line: startLine})
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if marker := data[at:next]; isMarker(marker, "---") || isMarker(marker, "...") {
			cut(at)
			start, startLine = at+len("---"), line // what follows the marker belongs to the document
		}
		at = next
	}
	cut(len(data))
	return out
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// shiftLines makes the line numbers in a YAML error those of the file.
func shiftLines(err error, by int) error {
	text := regexp.MustCompile(`\bline \d+`).ReplaceAllStringFunc(err.Error(), func(s string) string {
		n, convErr := strconv.Atoi(strings.TrimPrefix(s, "line "))
		if convErr != nil {
			return s
		}
		return "line " + strconv.Itoa(n+by)
	})
	for _, noise := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:\n  "} {
		text = strings.TrimPrefix(text, noise)
	}
	return errors.New(strings.ReplaceAll(text, "\n  ", "; "))
}
