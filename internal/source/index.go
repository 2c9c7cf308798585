package source

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
)

// index knows which file claims which object and decides which claim is in effect. It is
// pure and has one owner. The cost of a file's change is that of what the file holds.
//
// The first file in path order that has a good version of an object has the object. A
// file that is fading (gone, perhaps for a moment) gives way to any other.
type index struct {
	files    map[string]*file
	claims   map[object.Key][]*claim // sorted by file; one a file
	spaces   map[string]int          // how many objects in effect each namespace holds
	live     map[object.Key]*version // what is in effect
	refused  map[object.Key]string   // why that, or nothing, is in effect and not what is written
	problems map[string][]Problem    // by file; only files that have some
}

// file is one file as it was last read.
type file struct {
	path   string
	sum    [sha256.Size]byte // of the content that was last parsed
	err    error             // why it cannot be read now; its claims are then those of before
	doc    int               // document of err, if known
	claims []*claim
	loose  []Problem // about documents that are no claim
	fading bool
}

// claim is what one file says about one object.
type claim struct {
	key      object.Key
	file     *file
	number   int    // of the document; 0 if it is held from before
	raw      []byte // as it is written
	findings []manifest.Finding
	good     *version // the newest admitted version, nil if there never was one
	fresh    bool     // it was written since its problems were told last
}

// version is one admitted version of an object.
type version struct {
	object  object.Object
	content [sha256.Size]byte
	whole   [sha256.Size]byte
	raw     []byte
	shared  bool // object has left the source
	implied bool // nobody wrote it
}

// loaded is a file as it was just read and parsed, before it is taken over.
type loaded struct {
	path      string
	gone      bool
	unchanged bool
	err       error
	doc       int
	sum       [sha256.Size]byte
	documents []manifest.Document
	admitted  []manifest.Admitted // beside documents; zero for those without a key
	reuse     []*claim            // beside documents: the claim that says the same, already admitted
	prior     []*claim            // of a file that is new to the index: what it last said that was good
}

func newIndex() *index {
	return &index{
		files: map[string]*file{}, claims: map[object.Key][]*claim{}, spaces: map[string]int{},
		live: map[object.Key]*version{}, refused: map[object.Key]string{}, problems: map[string][]Problem{},
	}
}

// touched collects what one batch may have changed.
type touched struct {
	keys  map[object.Key]bool
	files map[string]bool // those whose problems may have changed
	heirs map[string]bool // those that keep an object in effect which another file said last
}

func newTouched() *touched {
	return &touched{keys: map[object.Key]bool{}, files: map[string]bool{}, heirs: map[string]bool{}}
}

// take takes over a file, and reports whether that may change anything.
func (x *index) take(l loaded, t *touched) bool {
	f := x.files[l.path]
	switch {
	case l.gone && f == nil:
		return false
	case l.gone:
		x.setClaims(f, nil, t)
		delete(x.files, l.path)
		t.files[l.path] = true
		return true
	case f == nil:
		f = x.restore(l.path, l.prior, t)
	case l.unchanged && f.err == nil && !f.fading:
		return false
	}
	t.files[l.path] = true
	x.setFading(f, false, t)
	f.err, f.doc = l.err, l.doc
	if l.err != nil || l.unchanged {
		return true
	}
	f.sum = l.sum
	claims, loose, incomplete := f.read(l)
	if incomplete {
		claims = f.hold(claims)
	}
	f.loose = loose
	x.setClaims(f, claims, t)
	return true
}

// restore adds a file by what it last said that was good.
func (x *index) restore(path string, prior []*claim, t *touched) *file {
	f := &file{path: path}
	for _, c := range prior {
		c.file = f
	}
	x.files[path] = f
	x.setClaims(f, prior, t)
	return f
}

func newVersion(raw []byte, a manifest.Admitted) *version {
	return &version{object: a.Object, content: a.Content, whole: a.Whole, raw: raw}
}

// fade marks a file that is not there at the moment.
func (x *index) fade(path string, t *touched) {
	if f := x.files[path]; f != nil {
		x.setFading(f, true, t)
	}
}

func (x *index) setFading(f *file, fading bool, t *touched) {
	if f.fading == fading {
		return
	}
	f.fading = fading
	for _, c := range f.claims {
		t.keys[c.key] = true
	}
}

// read makes the claims of what was parsed. incomplete means that some document does not
// say which object it is, so nothing can be said to be missing.
func (f *file) read(l loaded) (claims []*claim, loose []Problem, incomplete bool) {
	if len(f.claims) == 0 && foreign(l.documents) {
		return nil, []Problem{problem(f.path, 0, "", manifest.Finding{
			Severity: manifest.Ignored, Message: "holds no manifest: nothing in it has an apiVersion or a kind",
		})}, false
	}
	before := f.byKey()
	seen := map[object.Key]int{}
	for i := range l.documents {
		doc := &l.documents[i]
		if doc.Key == (object.Key{}) {
			for _, finding := range doc.Findings {
				loose = append(loose, problem(f.path, doc.Number, "", finding))
				incomplete = incomplete || finding.Severity == Refused
			}
			continue
		}
		if first, twice := seen[doc.Key]; twice {
			loose = append(loose, problem(f.path, doc.Number, doc.Key.String(), manifest.Finding{
				Severity: Refused, Message: fmt.Sprintf("is already in document %d of this file", first),
			}))
			continue
		}
		seen[doc.Key] = doc.Number
		c := &claim{key: doc.Key, file: f, number: doc.Number, raw: doc.Raw}
		if same := l.reuse[i]; same != nil {
			c.findings, c.good = same.findings, same.good
		} else {
			c.fresh = true
			a := l.admitted[i]
			c.findings = a.Findings
			if a.Object != nil {
				c.good = newVersion(doc.Raw, a)
			} else if old := before[doc.Key]; old != nil {
				c.good = old.good
			}
		}
		claims = append(claims, c)
	}
	return claims, loose, incomplete
}

// foreign reports whether no document of a file says that it is an object of any kind. If
// the file never held one either, it is somebody else's.
func foreign(documents []manifest.Document) bool {
	return len(documents) > 0 && !slices.ContainsFunc(documents, func(d manifest.Document) bool { return !d.Nameless })
}

// hold adds the claims of before that are not among the new ones.
func (f *file) hold(claims []*claim) []*claim {
	now := map[object.Key]bool{}
	for _, c := range claims {
		now[c.key] = true
	}
	for _, c := range f.claims {
		if !now[c.key] && c.good != nil {
			claims = append(claims, &claim{key: c.key, file: f, raw: c.good.raw, good: c.good, findings: []manifest.Finding{{
				Severity: Warning, Message: "stays in effect, though the file no longer says so: a document in it does not say which object it is",
			}}})
		}
	}
	return claims
}

func (f *file) byKey() map[object.Key]*claim {
	out := make(map[object.Key]*claim, len(f.claims))
	for _, c := range f.claims {
		out[c.key] = c
	}
	return out
}

func (x *index) setClaims(f *file, claims []*claim, t *touched) {
	for _, c := range f.claims {
		t.keys[c.key] = true
		rest := slices.DeleteFunc(x.claims[c.key], func(o *claim) bool { return o.file == f })
		if len(rest) == 0 {
			delete(x.claims, c.key)
		} else {
			x.claims[c.key] = rest
		}
	}
	f.claims = claims
	for _, c := range claims {
		t.keys[c.key] = true
		at, _ := slices.BinarySearchFunc(x.claims[c.key], f.path, func(o *claim, path string) int { return strings.Compare(o.file.path, path) })
		x.claims[c.key] = slices.Insert(x.claims[c.key], at, c)
	}
}

// owner is the claim that has the object, nil if none has a good version of it.
func (x *index) owner(key object.Key) *claim {
	var fading *claim
	for _, c := range x.claims[key] {
		switch {
		case c.good == nil:
		case !c.file.fading:
			return c
		case fading == nil:
			fading = c
		}
	}
	return fading
}

// inherit has the first file that speaks of an object, if none has a good version of it, go
// on with the one that was good: it does not matter to which file a mistake is moved.
func (x *index) inherit(key object.Key, good *version, t *touched) {
	claims := x.claims[key]
	if good == nil || good.raw == nil || len(claims) == 0 || x.owner(key) != nil {
		return
	}
	claims[0].good = good
	t.heirs[claims[0].file.path] = true
}

// orphans are the touched objects of which some file speaks, but none has a good version.
func (x *index) orphans(t *touched) map[object.Key]bool {
	out := map[object.Key]bool{}
	for key := range t.keys {
		if len(x.claims[key]) > 0 && x.owner(key) == nil {
			out[key] = true
		}
	}
	return out
}

// wanted is the version that ought to be in effect, nil if there ought to be none. A
// namespace that holds an object exists, with or without a manifest.
func (x *index) wanted(key object.Key) *version {
	if c := x.owner(key); c != nil {
		return c.good
	}
	if key.Kind == object.Namespace && x.spaces[key.Name] > 0 {
		return implied(key.Name)
	}
	return nil
}

// implied is the namespace that an API server would have made.
func implied(name string) *version {
	ns := &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: string(object.Namespace)},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
	}
	return &version{object: ns, content: sha256.Sum256([]byte(`{"kind":"Namespace"}`)), whole: sha256.Sum256([]byte("implied")), implied: true}
}

// refusal is why what is written of an object is not in effect; empty if it is. It is said
// by the file that has the object, or, if none has, by the first that speaks of it.
func (x *index) refusal(key object.Key) string {
	c := x.owner(key)
	if c == nil && len(x.claims[key]) > 0 {
		c = x.claims[key][0]
	}
	if c == nil {
		return ""
	}
	var list []string
	for _, f := range c.findings {
		if f.Severity == Refused {
			list = append(list, strings.TrimPrefix(f.Path+": "+f.Message, ": "))
		}
	}
	return strings.Join(list, "; ")
}

// replaced is one object whose version in effect changed, or why it is not what is
// written; a nil now is gone.
type replaced struct {
	key         object.Key
	before, now *version
	refused     string
}

// implied reports whether no manifest says, or said, that there is such an object.
func (r replaced) implied() bool {
	return r.refused == "" && (r.before == nil || r.before.implied) && (r.now == nil || r.now.implied)
}

// settle puts into effect what was touched, and says what that changed.
func (x *index) settle(t *touched) []replaced {
	var out []replaced
	put := func(key object.Key) {
		for _, c := range x.claims[key] {
			t.files[c.file.path] = true
		}
		x.inherit(key, x.live[key], t)
		before, now, refused := x.live[key], x.wanted(key), x.refusal(key)
		unchanged := before == nil && now == nil || before != nil && now != nil && before.whole == now.whole
		if unchanged && x.refused[key] == refused {
			return
		}
		out = append(out, replaced{key, before, now, refused})
		if x.refused[key] = refused; refused == "" {
			delete(x.refused, key)
		}
		if now == nil {
			delete(x.live, key)
		} else {
			x.live[key] = now
		}
		if key.Namespace != "" && (before == nil) != (now == nil) {
			x.spaces[key.Namespace]++
			if now == nil {
				x.spaces[key.Namespace] -= 2
			}
			if x.spaces[key.Namespace] == 0 {
				delete(x.spaces, key.Namespace)
			}
			t.keys[object.Key{Kind: object.Namespace, Name: key.Namespace}] = true
		}
	}
	for _, key := range slices.Collect(maps.Keys(t.keys)) {
		if key.Kind != object.Namespace {
			put(key)
		}
	}
	for key := range t.keys { // now that it is known which namespaces hold something
		if key.Kind == object.Namespace {
			put(key)
		}
	}
	return out
}

// review works out the problems of what was touched, and reports whether they changed.
func (x *index) review(t *touched, now time.Time) bool {
	changed := false
	for path := range t.files {
		var problems []Problem
		fresh := map[string]bool{}
		if f := x.files[path]; f != nil {
			problems = x.ofFile(f)
			for _, c := range f.claims {
				fresh[c.key.String()] = c.fresh
				c.fresh = false
			}
		}
		changed = setProblems(x.problems, path, problems, fresh, now) || changed
	}
	return changed
}

// setProblems replaces the problems of one file. Those that it had before keep their time,
// unless they are of an object that is written anew.
func setProblems(all map[string][]Problem, path string, problems []Problem, fresh map[string]bool, now time.Time) bool {
	before := make(map[Problem]time.Time, len(all[path])) // without their times
	for _, p := range all[path] {
		since := p.Since
		p.Since = time.Time{}
		before[p] = since
	}
	slices.SortFunc(problems, compareProblems)
	problems = foremost(problems)
	changed := len(all[path]) != len(problems)
	for i := range problems {
		since, known := before[problems[i]]
		if !known || fresh[problems[i].Object] {
			changed = true
			since = now
		}
		problems[i].Since = since
	}
	if len(problems) == 0 {
		delete(all, path)
	} else {
		all[path] = problems
	}
	return changed
}

// maxProblems is how many problems of one file are told.
const maxProblems = 100

// foremost cuts the sorted problems of one file down to what is told, and says that it did.
func foremost(problems []Problem) []Problem {
	rest := len(problems) - maxProblems
	if rest <= 1 {
		return problems
	}
	more := Problem{Severity: Refused, File: problems[0].File, Message: fmt.Sprintf("has %d more problems than the %d that are told", rest, maxProblems)}
	return append([]Problem{more}, problems[:maxProblems]...)
}

func (x *index) ofFile(f *file) []Problem {
	out := slices.Clone(f.loose)
	if f.err != nil {
		message := f.err.Error()
		kept := 0
		for _, c := range f.claims {
			if c.good != nil {
				kept++
			}
		}
		if kept > 0 {
			message += fmt.Sprintf("; what was last read from the file stays in effect (objects: %d)", kept)
		}
		// The findings of before are about what is no longer written.
		return []Problem{{Severity: Refused, File: f.path, Document: f.doc, Message: message}}
	}
	for _, c := range f.claims {
		for _, finding := range x.ofClaim(c) {
			out = append(out, problem(f.path, c.number, c.key.String(), finding))
		}
	}
	return out
}

// maxFindings is for how many reasons one document is told to be refused.
const maxFindings = 10

// ofClaim is what there is to say of a claim. The last of the reasons for which it is
// refused, in the order in which they are told, says what is in effect instead.
func (x *index) ofClaim(c *claim) []manifest.Finding {
	var refused, rest []manifest.Finding
	for _, finding := range c.findings {
		if finding.Severity == Refused {
			refused = append(refused, finding)
		} else {
			rest = append(rest, finding)
		}
	}
	owner := x.owner(c.key)
	if len(refused) == 0 {
		if owner != nil && owner != c && !c.file.fading {
			rest = append(rest, manifest.Finding{
				Severity: Refused, Message: fmt.Sprintf("is already in %s, which comes first: what is written here has no effect", owner.file.path),
			})
		}
		return rest
	}
	slices.SortFunc(refused, func(a, b manifest.Finding) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	more := len(refused) - maxFindings
	refused = refused[:min(len(refused), maxFindings)]
	last := &refused[len(refused)-1].Message
	if more > 0 {
		*last += fmt.Sprintf("; and %d more", more)
	}
	switch owner {
	case nil:
		*last += "; there is no good version of it, so it is not in effect"
	case c:
		*last += "; its last good version stays in effect"
	default:
		*last += fmt.Sprintf("; the version in %s is in effect", owner.file.path)
	}
	return append(rest, refused...)
}

func problem(path string, number int, key string, f manifest.Finding) Problem {
	return Problem{Severity: f.Severity, File: path, Document: number, Object: key, Path: f.Path, Message: f.Message}
}
