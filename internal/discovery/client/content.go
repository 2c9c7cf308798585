package client

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/svid"
	"aether.io/aether/internal/watermark"
)

// content is what was sent to us and what became of it.
type content struct {
	holding  *snapshot.Holding  // what was sent, refused or not; changed only by work
	mark     watermark.Mark     // the highest seen
	refused  []resource.Refusal // resources for ourselves that we could not use, sorted
	observed resource.Observed
	applying bool   // the Applier works on a snapshot
	awaited  string // the newest version that was taken in and is not known to be live; empty: none
}

// applied is a snapshot of which the Applier is done.
type applied struct {
	from    *link
	snap    snapshot.Snapshot
	outcome resource.Outcome
	err     error
}

// restore takes over what the Applier holds.
func (v *supervisor) restore() {
	held := v.cfg.Applier.Held()
	v.holding = snapshot.NewHolding(held.Resources)
	v.mark = held.Mark
	v.observed = v.cfg.Applier.Observed()
	v.trust()
}

func (v *supervisor) refs() []snapshot.Ref {
	refs := make([]snapshot.Ref, 0, v.holding.Len())
	for r := range v.holding.All() {
		refs = append(refs, snapshot.Ref{Name: r.Name, Hash: r.Hash})
	}
	return refs
}

// refusedOfHeld is what Envoy, or we ourselves, refuse of what is held now.
func (v *supervisor) refusedOfHeld() []resource.Refusal {
	all := slices.Concat(v.refused, v.cfg.Applier.Held().Refused)
	return slices.DeleteFunc(all, func(r resource.Refusal) bool {
		held := v.holding.Get(r.Name)
		return held == nil || held.Hash != r.Hash
	})
}

// work hands the snapshot that waits, if one may go on now, to the Applier. An
// application is never given up: what is held, and so what is subscribed with, includes
// it from here on, and it ends when Envoy has answered, whatever becomes of the stream.
func (v *supervisor) work(ctx context.Context) {
	s := v.current
	if s == nil || s.queued == nil || v.applying || (v.next != nil && v.next.subscribed) {
		return
	}
	snap := *s.queued
	s.queued = nil
	if v.holding.Len() == 0 { // it may be that we only claim to hold nothing
		snap.Full, snap.Removed = true, nil
	}
	delta, err := v.holding.Apply(snap.Update)
	if err != nil {
		v.cfg.Log.Error("snapshot refused, asking for all of it", logkey.Endpoint, v.endpoint.String(), logkey.Error, err)
		v.holding = &snapshot.Holding{}
		v.lost(s, err)
		return
	}
	v.mark = highest(v.mark, snap.Mark)
	snap.Mark = v.mark
	if touchesTrust(delta) {
		v.trust()
	}
	v.metrics.snapshot(v.cfg.Now())
	s.working, v.applying = true, true
	v.running.Go(func() {
		outcome, err := v.cfg.Applier.Apply(ctx, snap.Update)
		v.results <- applied{from: s, snap: snap, outcome: outcome, err: err}
	})
}

// settle takes in what became of an application, and answers for it.
func (v *supervisor) settle(r applied) {
	r.from.working, v.applying = false, false
	if r.err != nil {
		v.cfg.Log.Error("snapshot not taken in by the local xDS server", logkey.Version, r.snap.Version, logkey.Error, r.err)
		v.restore()
		if r.from == v.current {
			v.lost(r.from, r.err)
		}
		return
	}
	if r.from == v.current {
		v.answer(r.from, snapshot.Answer{Nonce: r.snap.Nonce, Version: r.snap.Version, Outcome: v.withOurs(r.outcome)})
	}
	v.awaited = r.snap.Version // it may be without an Envoy, and live only when there is one
	v.observe()
}

// observe looks at Envoy again and tells what has changed of the last answer.
func (v *supervisor) observe() {
	v.observed = v.cfg.Applier.Observed()
	if v.awaited != "" && v.awaited == v.observed.Version {
		v.awaited = ""
		if v.cfg.OnLive != nil {
			v.cfg.OnLive(v.observed.Version)
		}
	}
	v.touched()
	s := v.current
	if s == nil || s.answered == nil || s.working || v.observed.Version != s.answered.Version {
		return
	}
	now := v.withOurs(v.observed.Outcome)
	if slices.Equal(now.Pending, s.answered.Pending) && slices.Equal(now.Refused, s.answered.Refused) {
		return
	}
	v.answer(s, snapshot.Answer{Nonce: s.answered.Nonce, Version: s.answered.Version, Outcome: now})
}

func (v *supervisor) answer(s *link, a snapshot.Answer) {
	whole := a
	s.answered = &whole
	a.Refused = shortened(a.Refused)
	s.Answer(a)
}

// withOurs adds the resources that are for ourselves and of no use.
func (v *supervisor) withOurs(o resource.Outcome) resource.Outcome {
	o.Pending = slices.Clone(o.Pending)
	o.Refused = slices.Concat(o.Refused, v.refused)
	slices.SortFunc(o.Refused, func(a, b resource.Refusal) int { return a.Compare(b.Name) })
	return o
}

// longestDetail bounds what is told of one refusal, in bytes.
const longestDetail = 2 << 10

// shortened bounds the details, one and all, so that the answer fits into a message.
func shortened(refused []resource.Refusal) []resource.Refusal {
	out := slices.Clone(refused)
	for i := range out {
		limit := min(longestDetail, discovery.MaxMessage/2/len(out))
		detail := out[i].Detail
		out[i].Detail = strings.ToValidUTF8(detail[:min(len(detail), limit)], "")
	}
	return out
}

// trustBundleType is the resource that is for ourselves: the roots that the controller
// may be known by.
const trustBundleType = resource.OwnTypePrefix + "discovery.v1.TrustBundle"

func touchesTrust(d resource.Delta) bool {
	return slices.ContainsFunc(d.Changed, func(r *resource.Resource) bool { return r.TypeURL == trustBundleType }) ||
		slices.ContainsFunc(d.Removed, func(n resource.Name) bool { return n.TypeURL == trustBundleType })
}

// trust passes the roots that are held on. A bundle that cannot be read is refused and
// leaves those in force that were there before.
func (v *supervisor) trust() {
	v.refused = nil
	var all svid.Bundle
	for r := range v.holding.All() {
		if r.TypeURL != trustBundleType {
			continue
		}
		roots, err := parseTrust(r.Payload)
		if err != nil {
			v.refused = append(v.refused, resource.Refusal{Name: r.Name, Hash: r.Hash, Detail: err.Error()})
			continue
		}
		all = all.With(roots...)
	}
	if len(v.refused) == 0 {
		v.cfg.Identity.TrustToo(all)
	}
}

func parseTrust(payload []byte) ([]*x509.Certificate, error) {
	var m discoveryv1.TrustBundle
	if err := proto.Unmarshal(payload, &m); err != nil {
		return nil, fmt.Errorf("read trust bundle: %w", err)
	}
	roots := make([]*x509.Certificate, 0, len(m.GetRootsDer()))
	for i, der := range m.GetRootsDer() {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("read root %d: %w", i, err)
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// highest is the higher of both positions, in every source type that either has.
func highest(a, b watermark.Mark) watermark.Mark {
	switch {
	case a.Epoch > b.Epoch:
		return a
	case a.Epoch < b.Epoch:
		return b
	}
	out := a.Clone()
	if out.Positions == nil {
		return b
	}
	for t, p := range b.Positions {
		out.Positions[t] = max(out.Positions[t], p)
	}
	return out
}
