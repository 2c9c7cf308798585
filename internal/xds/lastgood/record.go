// Package lastgood keeps what an Envoy last ran well, so that a proxy which restarts
// while no controller can be reached serves it again. It is an append-only file of
// checksummed records: each is one whole step from one good state to the next.
//
// It is not a log of what was sent: only what Envoy has answered for gets in.
package lastgood

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/watermark"
)

// Record is one step. Of every resource that it names it says everything.
type Record struct {
	Version   string
	Mark      watermark.Mark
	Resources []*resource.Resource // as the controller sent them
	Removed   []resource.Name
	Refused   []resource.Refusal   // those of Resources that Envoy does not accept
	Fallback  []*resource.Resource // what it accepted last of those of Resources that it has not accepted
}

// IsZero reports whether the step leads nowhere.
func (r Record) IsZero() bool { return r.Version == "" && len(r.Resources) == 0 && len(r.Removed) == 0 }

// Image is where all records lead.
type Image struct {
	Version   string
	Mark      watermark.Mark
	Resources map[resource.Name]*resource.Resource
	Refused   map[resource.Name]resource.Refusal
	Fallback  map[resource.Name]*resource.Resource
}

// NewImage returns the image of no records.
func NewImage() *Image {
	return &Image{
		Resources: map[resource.Name]*resource.Resource{},
		Refused:   map[resource.Name]resource.Refusal{},
		Fallback:  map[resource.Name]*resource.Resource{},
	}
}

// IsZero reports whether there was no record.
func (im *Image) IsZero() bool { return im.Version == "" && len(im.Resources) == 0 }

// Apply takes the step.
func (im *Image) Apply(r Record) {
	im.Version, im.Mark = r.Version, r.Mark
	forget := func(n resource.Name) {
		delete(im.Refused, n)
		delete(im.Fallback, n)
	}
	for _, n := range r.Removed {
		delete(im.Resources, n)
		forget(n)
	}
	for _, res := range r.Resources {
		im.Resources[res.Name] = res
		forget(res.Name)
	}
	for _, f := range r.Refused {
		im.Refused[f.Name] = f
	}
	for _, res := range r.Fallback {
		im.Fallback[res.Name] = res
	}
}

// Record is the one step from nothing to the image. Everything in it is sorted.
func (im *Image) Record() Record {
	byName := func(a, b *resource.Resource) int { return a.Compare(b.Name) }
	return Record{
		Version:   im.Version,
		Mark:      im.Mark,
		Resources: slices.SortedFunc(maps.Values(im.Resources), byName),
		Refused:   slices.SortedFunc(maps.Values(im.Refused), func(a, b resource.Refusal) int { return a.Compare(b.Name) }),
		Fallback:  slices.SortedFunc(maps.Values(im.Fallback), byName),
	}
}

// encode writes three messages: the step, the fallbacks, and the reasons of refusals.
func (r Record) encode() ([]byte, error) {
	step := &discoveryv1.Snapshot{
		Version:   r.Version,
		Watermark: &discoveryv1.Watermark{Epoch: r.Mark.Epoch, Positions: r.Mark.Positions},
		Resources: toProto(r.Resources),
	}
	for _, n := range r.Removed {
		step.Removed = append(step.Removed, &discoveryv1.ResourceName{TypeUrl: n.TypeURL, Name: n.Name})
	}
	reasons := &discoveryv1.Nack{}
	for _, f := range r.Refused {
		reasons.Errors = append(reasons.Errors, &discoveryv1.ResourceError{TypeUrl: f.TypeURL, Name: f.Name.Name, Detail: f.Detail})
	}
	var b bytes.Buffer
	for _, m := range []proto.Message{step, &discoveryv1.Snapshot{Resources: toProto(r.Fallback)}, reasons} {
		if _, err := protodelim.MarshalTo(&b, m); err != nil {
			return nil, fmt.Errorf("encode record: %w", err)
		}
	}
	return b.Bytes(), nil
}

func decode(data []byte) (Record, error) {
	var step, fallback discoveryv1.Snapshot
	var reasons discoveryv1.Nack
	in := bytes.NewReader(data)
	opts := protodelim.UnmarshalOptions{MaxSize: -1}
	for _, m := range []proto.Message{&step, &fallback, &reasons} {
		if err := opts.UnmarshalFrom(in, m); err != nil {
			return Record{}, fmt.Errorf("decode record: %w", err)
		}
	}
	r := Record{
		Version: step.GetVersion(),
		Mark:    watermark.Mark{Epoch: step.GetWatermark().GetEpoch(), Positions: step.GetWatermark().GetPositions()},
	}
	var err error
	if r.Resources, err = fromProto(step.GetResources()); err != nil {
		return Record{}, err
	}
	if r.Fallback, err = fromProto(fallback.GetResources()); err != nil {
		return Record{}, err
	}
	for _, n := range step.GetRemoved() {
		r.Removed = append(r.Removed, resource.Name{TypeURL: n.GetTypeUrl(), Name: n.GetName()})
	}
	content := make(map[resource.Name]resource.Hash, len(r.Resources))
	for _, res := range r.Resources {
		content[res.Name] = res.Hash
	}
	for _, e := range reasons.GetErrors() {
		n := resource.Name{TypeURL: e.GetTypeUrl(), Name: e.GetName()}
		h, ok := content[n]
		if !ok {
			return Record{}, fmt.Errorf("decode record: refusal of %s, which it does not hold", n)
		}
		r.Refused = append(r.Refused, resource.Refusal{Name: n, Hash: h, Detail: e.GetDetail()})
	}
	return r, nil
}

func toProto(rs []*resource.Resource) []*discoveryv1.Resource {
	out := make([]*discoveryv1.Resource, 0, len(rs))
	for _, r := range rs {
		p := &discoveryv1.Resource{TypeUrl: r.TypeURL, Name: r.Name.Name, Hash: r.Hash[:], Payload: r.Payload}
		for _, k := range r.Origin {
			p.Origin = append(p.Origin, k.String())
		}
		out = append(out, p)
	}
	return out
}

func fromProto(ps []*discoveryv1.Resource) ([]*resource.Resource, error) {
	out := make([]*resource.Resource, 0, len(ps))
	for _, p := range ps {
		r := &resource.Resource{Name: resource.Name{TypeURL: p.GetTypeUrl(), Name: p.GetName()}, Payload: p.GetPayload()}
		if copy(r.Hash[:], p.GetHash()) != len(r.Hash) {
			return nil, fmt.Errorf("decode record: %s: hash of %d bytes", r.Name, len(p.GetHash()))
		}
		for _, o := range p.GetOrigin() {
			k, err := object.ParseKey(o)
			if err != nil {
				return nil, fmt.Errorf("decode record: %s: %w", r.Name, err)
			}
			r.Origin = append(r.Origin, k)
		}
		out = append(out, r)
	}
	return out, nil
}
