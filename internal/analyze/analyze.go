// Package analyze says what is wrong with configuration objects before, or without, their being
// served: objects come in as they were read, findings with stable codes come out. What is not
// as it should be is not decided here: the controller's own routing graph is run over the
// objects, and what it would write into their statuses is translated. So an analysis cannot
// disagree with the controller. Beside that there are lints of what no status says.
//
// Of files not everything is known: what they refer to and do not have is stood in for, unless
// they are said to be complete. It reads no file and asks nobody.
package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// Config is what an analysis must know beside the objects.
type Config struct {
	ControllerName   string // whose GatewayClasses are ours
	ReleaseNamespace string // whose MeshConfig every namespace inherits
	System           meshconfig.System
	SystemKnown      bool      // System is what an installation has; else what it has by default
	Now              time.Time // certificates are judged as of then
	// Complete says that everything that there is, is given: what is missing is an error.
	Complete bool
	// Live says that the objects are those of a cluster, with what its controllers made of
	// them: Services in front of Gateways, endpoints. It implies Complete.
	Live bool
	// Standalone says that nothing is in front of Gateways and nothing makes endpoints.
	Standalone bool
	PortOffset uint32 // standalone: added to the port of each listener
	// Unlisted are kinds of which it is not known what there is, though all else is Complete,
	// and why.
	Unlisted map[object.Kind]string
}

// Document is one object as it is written somewhere.
type Document struct {
	File   string           // empty: on a cluster
	Line   func(string) int // of a field's path in the file, from 1, of the object for the empty path; 0: not known. nil: none is
	Key    object.Key       // zero: it does not say which object it is
	Object object.Object    // nil: it is refused
	Wrong  []Wrong          // what was found when it was read
}

// Wrong is one thing that was found when a document was read.
type Wrong struct {
	Path    string
	Message string
	Refused bool // the object is refused for it
	Ignored bool // it is of a kind that is not read
	Unknown bool // it is a field that is not known
}

// Finding is one thing that is to be said.
type Finding struct {
	Code     code.ID       `json:"code"`
	Severity code.Severity `json:"severity"`
	Object   string        `json:"object,omitempty"` // Kind/namespace/name, if known
	Path     string        `json:"path,omitempty"`   // of the field, if known
	File     string        `json:"file,omitempty"`
	Line     int           `json:"line,omitempty"` // from 1; 0: not known
	Message  string        `json:"message"`
}

// Run analyzes documents. Findings are sorted by file, line, object, path and code. An error
// is about the configuration.
func Run(c Config, documents []Document) ([]Finding, error) {
	c.Complete = c.Complete || c.Live
	a := &analysis{
		c: c, codes: code.All(), written: map[object.Key]*Document{}, refused: map[object.Key]bool{}, stood: map[object.Key]bool{},
		objects: map[object.Key]object.Object{},
	}
	for i := range documents {
		a.take(&documents[i])
	}
	for _, k := range slices.Sorted(maps.Keys(c.Unlisted)) {
		a.findings = append(a.findings, Finding{Code: code.Unlisted, Severity: code.Info, Object: string(k), Message: "cannot be listed: " + c.Unlisted[k]})
	}
	a.refs = a.references()
	a.standIn()
	if err := a.route(); err != nil {
		return nil, err
	}
	a.lint()
	return a.sorted(), nil
}

// analysis is one Run.
type analysis struct {
	c        Config
	codes    []code.Code
	written  map[object.Key]*Document     // the first that has the key
	refused  map[object.Key]bool          // of these, those of which nothing is known
	objects  map[object.Key]object.Object // what is analyzed: what is written, and what stands in
	stood    map[object.Key]bool          // what stands in
	refs     []reference                  // of all that are written
	graph    *routing.Graph
	statuses map[object.Key]routing.Status
	tables   map[placed]*resource.Resource // the routes that proxies would have
	findings []Finding
}

// placed is a resource of the proxies of one scope.
type placed struct {
	in   scope.Scope
	name resource.Name
}

// take takes a document in and tells what was found when it was read.
func (a *analysis) take(d *Document) {
	for _, w := range d.Wrong {
		id, severity := d.judge(w)
		a.add(d, Finding{Code: id, Severity: severity, Path: w.Path, Message: w.Message})
	}
	if d.Key == (object.Key{}) {
		return
	}
	if first, twice := a.written[d.Key]; twice {
		a.add(d, Finding{Code: code.Twice, Severity: code.Error, Message: "is already written in " + place(first) + ", which counts here"})
		return
	}
	a.written[d.Key] = d
	if d.Object == nil {
		a.refused[d.Key] = true
		return
	}
	a.objects[d.Key] = d.Object
}

// judge says by which code something that was found when reading is told.
func (d *Document) judge(w Wrong) (code.ID, code.Severity) {
	mesh := d.Key.Kind == object.MeshConfig
	switch {
	case w.Ignored:
		return code.NotRead, code.Info
	case d.Key == (object.Key{}):
		return code.Unreadable, code.Error
	case mesh && w.Unknown:
		return code.MeshUnknown, code.Error
	case w.Unknown:
		return code.Unknown, code.Error
	case !w.Refused:
		return code.Dropped, code.Warning
	case mesh && d.Key.Name != meshConfigName:
		return code.MeshName, code.Error
	case mesh:
		return code.MeshInvalid, code.Error
	}
	return code.Refused, code.Error
}

// add tells f of a document.
func (a *analysis) add(d *Document, f Finding) {
	f.File = d.File
	if d.Key != (object.Key{}) {
		f.Object = d.Key.String()
	}
	if d.Line != nil {
		f.Line = d.Line(f.Path)
	}
	a.findings = append(a.findings, f)
}

// say tells something of an object that is written.
func (a *analysis) say(k object.Key, id code.ID, path, format string, args ...any) {
	a.sayAs(k, id, "", path, format, args...)
}

// sayAs is say with another severity than the code's, unless that is empty.
func (a *analysis) sayAs(k object.Key, id code.ID, severity code.Severity, path, format string, args ...any) {
	d := a.written[k]
	if d == nil {
		return // it stands in
	}
	if severity == "" {
		severity = a.severity(id)
	}
	a.add(d, Finding{Code: id, Severity: severity, Path: path, Message: fmt.Sprintf(format, args...)})
}

// knows reports whether it is known which objects of a kind there are.
func (a *analysis) knows(k object.Kind) bool {
	_, unlisted := a.c.Unlisted[k]
	return !unlisted
}

func (a *analysis) severity(id code.ID) code.Severity {
	if i := slices.IndexFunc(a.codes, func(c code.Code) bool { return c.ID == id }); i >= 0 {
		return a.codes[i].Severity
	}
	return code.Warning
}

func (a *analysis) sorted() []Finding {
	slices.SortStableFunc(a.findings, func(x, y Finding) int {
		return cmp.Or(cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line), cmp.Compare(x.Object, y.Object),
			cmp.Compare(x.Path, y.Path), cmp.Compare(x.Code, y.Code), cmp.Compare(x.Message, y.Message))
	})
	return slices.Compact(a.findings)
}

// place is where a document is, for people.
func place(d *Document) string {
	if d.File == "" {
		return "the cluster"
	}
	if d.Line != nil {
		if line := d.Line(""); line > 0 {
			return fmt.Sprintf("%s:%d", d.File, line)
		}
	}
	return d.File
}
