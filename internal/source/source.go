// Package source turns where configuration comes from into one stream of changes. Today
// that is a directory of manifests (Directory); the Kubernetes API will give the same
// batches. Manifests come in, typed objects with defaults and the metadata that a server
// would set go out, together with everything that is wrong at present. Nothing downstream
// knows which source it has.
//
// It does not interpret objects: a reference to nothing is none of its business.
package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
	"aether.io/aether/internal/watermark"
)

// Batch is what changed since the batch before. It is immutable.
type Batch struct {
	Changes  []object.Change // at most one a key, in the order of object.Kinds, then namespace and name
	Mark     watermark.Mark  // position after these changes
	Synced   bool            // the initial list is complete with this batch; true from then on
	Problems []Problem       // everything that is wrong at present, sorted, not only what is new
	Files    []string        // those whose content or existence caused the batch, sorted
	Noticed  time.Time       // when the first of what caused it was noticed
}

// Severity is what a problem means for what is in effect.
type Severity = manifest.Severity

// The severities, the worst first.
const (
	Refused = manifest.Refused // what is written is not in effect; its last good version is, if there was one
	Warning = manifest.Warning // it is in effect, but not as its author may think
	Ignored = manifest.Ignored // a document of a kind that is not read
)

// Problem is one thing that is wrong with the source.
type Problem struct {
	Severity Severity  `json:"severity"`
	File     string    `json:"file"`               // relative to the directory, or absolute if it is none of its; empty if it is about the directory itself
	Document int       `json:"document,omitempty"` // place in the file, from 1; 0 if it is about the file
	Object   string    `json:"object,omitempty"`   // Kind/namespace/name, if known
	Path     string    `json:"path,omitempty"`     // of the field, if known
	Message  string    `json:"message"`
	Since    time.Time `json:"since"` // when this process first saw it of what is written; an object that is written anew has it anew
}

// String is the problem in one line, without Since.
func (p Problem) String() string {
	s := p.File
	if p.Document > 0 {
		s += fmt.Sprintf(" document %d", p.Document)
	}
	if p.Object != "" {
		s = strings.TrimPrefix(s+" "+p.Object, " ") // of what is in no file it is all there is
	}
	if s == "" {
		s = "directory"
	}
	if p.Path != "" {
		s += ": " + p.Path
	}
	return s + ": " + p.Message
}

func compareProblems(a, b Problem) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Document, b.Document), cmp.Compare(a.Object, b.Object),
		cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
}

// compareChanges orders what is referred to before what refers to it.
func compareChanges(rank map[object.Kind]int) func(a, b object.Change) int {
	return func(a, b object.Change) int {
		return cmp.Or(cmp.Compare(rank[a.Key.Kind], rank[b.Key.Kind]), a.Key.Compare(b.Key))
	}
}

func ranks() map[object.Kind]int {
	out := map[object.Kind]int{}
	for i, k := range object.Kinds() {
		out[k] = i
	}
	return out
}

func sortedProblems(byFile map[string][]Problem) []Problem {
	var out []Problem
	for _, problems := range byFile {
		out = append(out, problems...)
	}
	slices.SortFunc(out, compareProblems)
	return out
}
