// Package admit takes objects that a test made through what an API server does to them:
// unknown fields go, defaults come, and what the definitions forbid is refused.
package admit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
)

// Server admits objects. It is safe for concurrent use.
type Server struct{ decoder *manifest.Decoder }

// New makes a Server of the embedded definitions.
func New() (*Server, error) {
	v, err := crd.New()
	if err != nil {
		return nil, fmt.Errorf("read definitions: %w", err)
	}
	return &Server{decoder: manifest.NewDecoder(v)}, nil
}

// Object returns the object as a server would keep it, with its generation and
// creationTimestamp, or an error that says why it would be refused. The object needs its
// apiVersion and kind.
func (s *Server) Object(ctx context.Context, o object.Object) (object.Object, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	out, err := s.JSON(ctx, raw)
	if err != nil {
		return nil, err
	}
	out.SetGeneration(o.GetGeneration())
	out.SetCreationTimestamp(metav1.Time{Time: o.GetCreationTimestamp().Time})
	return out, nil
}

// JSON is Object for one that is written as JSON: what no Go type can say can be said so.
func (s *Server) JSON(ctx context.Context, raw []byte) (object.Object, error) {
	o, findings, err := s.Find(ctx, raw)
	if err != nil || o != nil {
		return o, err
	}
	var why []string
	for _, f := range findings {
		why = append(why, f.Path+": "+f.Message)
	}
	return nil, fmt.Errorf("refused: %s", strings.Join(why, "; "))
}

// Find is JSON that tells what is wrong field by field: the object is nil then. The error
// is of the syntax.
func (s *Server) Find(ctx context.Context, raw []byte) (object.Object, []manifest.Finding, error) {
	docs, err := manifest.ParseJSON(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("parse: %w", err)
	}
	if len(docs) != 1 {
		return nil, nil, fmt.Errorf("parse: %d objects, want 1", len(docs))
	}
	if docs[0].Key == (object.Key{}) {
		return nil, docs[0].Findings, nil
	}
	admitted := s.decoder.Decode(ctx, &docs[0], nil)
	return admitted.Object, admitted.Findings, nil
}

// Key is the key of an object that was admitted.
func Key(o object.Object) object.Key {
	return object.Key{Kind: object.Kind(o.GetObjectKind().GroupVersionKind().Kind), Namespace: o.GetNamespace(), Name: o.GetName()}
}
