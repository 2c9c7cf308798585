package claim

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Label is on the Lease of each release, with the release's name.
	Label = "config.aether.io/release"
	// Annotation has what the release watches, as JSON.
	Annotation = "config.aether.io/watches"
	// maxText bounds the annotation, in bytes: 65 namespaces of 63 have 4.3 KiB.
	maxText = 8 << 10
)

// known is a Lease and how it is judged.
type known struct {
	lease coordinationv1.Lease
	entry entry
}

// read is a Lease as it is judged. It is of no release, ok is false, unless its name is made of
// what it says: an older one that is given the label later does not come before a release's.
func read(l *coordinationv1.Lease) (e entry, ok bool) {
	e = entry{
		Namespace: l.Namespace, Release: l.Labels[Label], Name: l.Name,
		Holds: l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "", Since: l.CreationTimestamp.Time,
	}
	text := l.Annotations[Annotation]
	if len(text) > maxText || l.Name != nameOf(text) {
		return e, false
	}
	watches, err := parse(text)
	if err != nil || watches.Class == "" || watches.Namespaces != nil && !slices.Contains(watches.Namespaces, l.Namespace) {
		return e, false
	}
	e.Watches = watches
	return e, true
}

// lasts is for how long a Lease counts after it was renewed.
func lasts(l *coordinationv1.Lease) time.Duration {
	if l.Spec.LeaseDurationSeconds == nil {
		return DefaultDuration
	}
	return min(max(time.Duration(*l.Spec.LeaseDurationSeconds)*time.Second, time.Second), maxDuration)
}

// lease is what this process claims, when it is new: nothing is held yet.
func (c *Claim) lease() *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.c.Namespace, Name: c.c.Watches.name()}}
	c.fill(l)
	return l
}

// fill says that a Lease is kept now, and what for, whatever others wrote there.
func (c *Claim) fill(l *coordinationv1.Lease) {
	metav1.SetMetaDataLabel(&l.ObjectMeta, Label, c.c.Release)
	metav1.SetMetaDataAnnotation(&l.ObjectMeta, Annotation, c.c.Watches.encode())
	now, seconds := metav1.NowMicro(), int32(c.c.Duration/time.Second)
	l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &now, &seconds
}

// mark says whether this release acts.
func (c *Claim) mark(ctx context.Context, own *known, holds bool) error {
	l := own.lease.DeepCopy()
	l.Spec.HolderIdentity, l.Spec.AcquireTime = nil, nil
	c.fill(l)
	if holds {
		holder := c.c.Namespace + "/" + c.c.Release
		l.Spec.HolderIdentity, l.Spec.AcquireTime = &holder, l.Spec.RenewTime
	}
	if err := c.c.Store.Update(ctx, l); err != nil { // a conflict is another replica's
		return fmt.Errorf("mark Lease %s/%s: %w", l.Namespace, l.Name, err)
	}
	return nil
}

// renew says that the Lease is kept.
func (c *Claim) renew(ctx context.Context, own *known) error {
	l := own.lease.DeepCopy()
	c.fill(l)
	if err := c.c.Store.Update(ctx, l); err != nil && !apierrors.IsConflict(err) { // then another replica has
		return fmt.Errorf("renew Lease %s/%s: %w", l.Namespace, l.Name, err)
	}
	return nil
}

// tidy deletes Leases of what this release claimed before its values changed.
func (c *Claim) tidy(ctx context.Context, ended []coordinationv1.Lease) error {
	for i := range ended {
		l := &ended[i]
		if err := c.c.Store.Delete(ctx, l); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete Lease %s/%s, which has ended: %w", l.Namespace, l.Name, err)
		}
	}
	return nil
}
