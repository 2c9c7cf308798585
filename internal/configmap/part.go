package configmap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// ErrMoved says that the ConfigMap is another than the one that was looked at.
var ErrMoved = errors.New("somebody else wrote at the same time")

// Part is the entries of a ConfigMap that are ours by their keys, whoever wrote them. All
// others are somebody else's, and are left alone.
type Part struct {
	*Map
	ours func(key string) bool
}

// State is what there was of a Part at one moment. The zero State is that of no ConfigMap.
type State struct {
	Text map[string]string // what is ours
	// Amiss is the keys that are ours under binary data, sorted: nobody reads those, and while
	// one is there the API takes no text under its key.
	Amiss   []string
	Foreign int    // bytes of keys and values that are somebody else's
	Version string // of the ConfigMap; empty: there is none
	UID     types.UID
}

// NewPart checks c. ours says of a key whether its entry is ours.
func NewPart(c Config, ours func(key string) bool) (*Part, error) {
	if ours == nil {
		return nil, errors.New("a part of a ConfigMap needs to know what is in it")
	}
	m, err := New(c)
	if err != nil {
		return nil, err
	}
	return &Part{m, ours}, nil
}

// Of is what there is of the part in a ConfigMap, which is not kept.
func (p *Part) Of(m *corev1.ConfigMap) State {
	s := State{Version: m.ResourceVersion, UID: m.UID, Text: map[string]string{}}
	for k, v := range m.Data {
		if p.ours(k) {
			s.Text[k] = v
		} else {
			s.Foreign += len(k) + len(v)
		}
	}
	for k, v := range m.BinaryData {
		if p.ours(k) {
			s.Amiss = append(s.Amiss, k)
		} else {
			s.Foreign += len(k) + len(v)
		}
	}
	slices.Sort(s.Amiss)
	return s
}

// Look returns what there is now.
func (p *Part) Look(ctx context.Context) (State, error) {
	now, err := p.maps.Get(ctx, p.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return State{}, nil
	}
	if err != nil {
		return State{}, fmt.Errorf("read %s: %w", p.at, err)
	}
	return p.Of(now), nil
}

// Replace makes text all that is ours, and returns what there is then. If it is not as it was
// any more, nothing is written and the error is ErrMoved: so a write that comes late, as of a
// leader that is none any more, changes nothing.
//
// Server-side apply takes over our keys by force, and leaves those that somebody else wrote
// and we do not have: they are taken out by a patch of their own.
func (p *Part) Replace(ctx context.Context, was State, text map[string]string) (State, error) {
	if len(was.Amiss) > 0 {
		now, err := p.drop(ctx, was.Version, nil, was.Amiss)
		if err != nil {
			return State{}, err
		}
		was = now
	}
	apply := coreac.ConfigMap(p.name, p.ns).WithLabels(map[string]string{managedByLabel: fieldManager}).WithData(text)
	if was.Version != "" { // by its UID alone one that was deleted is told from one that is to be made
		apply.WithResourceVersion(was.Version).WithUID(was.UID)
	}
	written, err := p.maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return State{}, p.fault(err)
	}
	now := p.Of(written)
	left := slices.DeleteFunc(slices.Sorted(maps.Keys(now.Text)), func(k string) bool { _, ours := text[k]; return ours })
	if len(left) == 0 {
		return now, nil
	}
	return p.drop(ctx, now.Version, left, nil)
}

// drop takes out entries, whoever wrote them.
func (p *Part) drop(ctx context.Context, version string, text, binary []string) (State, error) {
	nothing := func(keys []string) map[string]any {
		out := map[string]any{}
		for _, k := range keys {
			out[k] = nil
		}
		return out
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version}, "data": nothing(text), "binaryData": nothing(binary),
	})
	if err != nil {
		return State{}, err
	}
	now, err := p.maps.Patch(ctx, p.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return State{}, p.fault(err)
	}
	return p.Of(now), nil
}

func (p *Part) fault(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("write %s: %w (%w)", p.at, ErrMoved, err)
	}
	return fmt.Errorf("write %s: %w", p.at, err)
}
