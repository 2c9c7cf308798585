package kube

import (
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/source/material"
)

// mirror is the last known objects of one kind. A reflector fills it; what differs goes
// on to the intake.
//
// That an object of a custom kind was deleted says nothing of whether anybody wanted that:
// with a definition all its objects go, and may be seen to go first. So such a deletion
// is in doubt, and the object in effect, until the definition is known to be in order (ADR 0023).
type mirror struct {
	kind   kind
	intake *intake
	seen   func(object.Key, object.Object) // nil: nobody looks
	past   *past
	doubts chan struct{} // capacity 1: there are deletions in doubt; taken by confirm

	mu      sync.Mutex                   // guards what follows
	objects map[object.Key]object.Object // as the API has them, the first of versions that differ in nothing that is read
	// behind is what is in effect of objects that are not admitted as they are now; nil:
	// nothing was ever.
	behind  map[object.Key]object.Object
	doubted map[object.Key]uint64 // deleted, but in effect; by a number of its own for each deletion
	number  uint64
	// unlisted says that a list was taken in which is not told of yet.
	unlisted bool
	turn     uint64 // of the reflector
	reached  string // position up to which all was seen, but for those in doubt
}

var (
	_ cache.ReflectorStore         = (*mirror)(nil)
	_ cache.ReflectorBookmarkStore = (*mirror)(nil)
)

func newMirror(k kind, in *intake, seen func(object.Key, object.Object), p *past) *mirror {
	return &mirror{
		kind: k, intake: in, seen: seen, past: p, doubts: make(chan struct{}, 1),
		objects: map[object.Key]object.Object{}, behind: map[object.Key]object.Object{}, doubted: map[object.Key]uint64{},
	}
}

// Add takes in an object that is new, or that is new to us.
func (m *mirror) Add(o any) error { return m.Update(o) }

// Update takes in an object's newest version.
func (m *mirror) Update(o any) error {
	obj, why, err := m.receive(o)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(obj.GetResourceVersion(), m.set(nil, obj, why))
	m.tellListed()
	return nil
}

// Delete takes out an object, or has it doubted whether it is to go.
func (m *mirror) Delete(o any) error {
	obj, _, err := m.read(o)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(obj.GetResourceVersion(), m.remove(nil, m.key(obj)))
	return nil
}

// Replace takes in a whole list, read at a position.
func (m *mirror) Replace(list []any, at string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var changes []object.Change
	there := make(map[object.Key]bool, len(list))
	for _, o := range list {
		obj, why, err := m.receive(o)
		if err != nil {
			return err
		}
		there[m.key(obj)] = true
		changes = m.set(changes, obj, why)
	}
	for k := range m.objects {
		if !there[k] {
			changes = m.remove(changes, k)
		}
	}
	m.reached = at // it may have gone back
	m.advance(at, changes)
	m.unlisted = true
	m.tellListed()
	return nil
}

// Bookmark moves on to a position up to which nothing else has changed.
func (m *mirror) Bookmark(at string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.advance(at, nil)
	return nil
}

// advance hands on changes that were seen up to a position. The position stands still
// while a deletion before it is in doubt: who is at a position has done what came before it.
// The caller holds mu.
func (m *mirror) advance(at string, changes []object.Change) {
	if position(at) > position(m.reached) {
		m.reached = at
	}
	if len(m.doubted) > 0 {
		at = ""
	}
	m.intake.take(m.turn, m.kind.position(), at, changes)
}

// tellListed says that all was taken of a list, what was in doubt with it. The caller holds mu.
func (m *mirror) tellListed() {
	if m.unlisted && len(m.doubted) == 0 {
		m.unlisted = false
		m.intake.listed(m.turn, m.kind.feed())
	}
}

// begin says that a reflector begins which belongs to a turn.
func (m *mirror) begin(turn uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.turn = turn
}

// Resync does nothing: what has been taken in is taken in.
func (m *mirror) Resync() error { return nil }

// set keeps an object and adds a change to changes if it differs in anything that is
// read: most updates are of statuses. What nobody could use does not replace what is in
// effect (ADR 0016), nor does what could not be read, for which why is not empty.
func (m *mirror) set(changes []object.Change, o object.Object, why string) []object.Change {
	k := m.key(o)
	delete(m.doubted, k)
	old, known := m.objects[k]
	if known && same(old, o) {
		return changes // and what has been handed out is not kept twice
	}
	m.objects[k] = o
	if why == "" {
		why = material.Problem(o)
	}
	if m.kind.custom() {
		m.intake.report(k.String(), source.Refused, why)
	} // else it is for those who refer to it to say: of what nobody refers to, a cluster has plenty
	if why == "" {
		m.admit(k)
		return append(changes, object.Change{Key: k, Object: o})
	}
	if _, already := m.behind[k]; !already {
		if !known {
			old = m.past.of(k, o.GetUID())
		}
		m.behind[k] = old
		m.past.keep(k, old)
	}
	return append(changes, object.Change{Key: k, Object: m.behind[k], Refused: why, Generation: o.GetGeneration(), UID: o.GetUID()})
}

// remove takes an object out, or has that doubted, and adds what changes.
func (m *mirror) remove(changes []object.Change, k object.Key) []object.Change {
	if !m.kind.custom() || m.objects[k] == nil {
		return append(changes, m.drop(k))
	}
	m.number++
	m.doubted[k] = m.number
	m.doubt()
	return changes
}

// drop forgets an object.
func (m *mirror) drop(k object.Key) object.Change {
	delete(m.objects, k)
	if m.admit(k) {
		m.intake.report(k.String(), "", "")
	}
	return object.Change{Key: k}
}

// admit forgets what was in effect in an object's place; it reports whether something was.
func (m *mirror) admit(k object.Key) bool {
	_, was := m.behind[k]
	if was {
		delete(m.behind, k)
		m.past.keep(k, nil)
	}
	return was
}

func (m *mirror) key(o object.Object) object.Key {
	return object.Key{Kind: m.kind.Name, Namespace: o.GetNamespace(), Name: o.GetName()}
}

// read makes an object of what came; why is what is wrong with it.
func (m *mirror) read(o any) (obj object.Object, why string, err error) {
	obj, ok := o.(object.Object)
	if !ok {
		return nil, "", fmt.Errorf("%T came where %s was expected", o, m.kind.Name)
	}
	if m.kind.Decoder == nil {
		return obj, "", nil
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, "", fmt.Errorf("%T came where %s was to be read", o, m.kind.Name)
	}
	obj, why = m.kind.Decoder.decode(u)
	return obj, why, nil
}

// receive takes an object over from the reflector, which keeps none, lets whoever wants to
// see it as it came, and drops what nothing reads. A kind is set as a manifest has it;
// decoders leave it empty.
func (m *mirror) receive(o any) (obj object.Object, why string, err error) {
	obj, why, err = m.read(o)
	if err != nil {
		return nil, "", err
	}
	if m.seen != nil {
		m.seen(m.key(obj), obj)
	}
	obj.SetManagedFields(nil)
	if a := obj.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		delete(a, corev1.LastAppliedConfigAnnotation)
	}
	if m.kind.Trim != nil {
		m.kind.Trim(obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(m.kind.Resource.GroupVersion().WithKind(string(m.kind.Name)))
	return obj, why, nil
}

// same reports whether two versions of an object differ in nothing but their version. The
// version of b is put back before it returns; neither has left this goroutine's hands as
// far as b is concerned.
func same(a, b object.Object) bool {
	if a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() {
		return false
	}
	version := b.GetResourceVersion()
	b.SetResourceVersion(a.GetResourceVersion())
	defer b.SetResourceVersion(version)
	return object.Alike(a, b)
}

// position is a resourceVersion as a number, 0 if it is none: they are comparable within
// a resource type (KEP-5504).
func position(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
