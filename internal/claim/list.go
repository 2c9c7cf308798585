package claim

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Leases with the label are anybody's to make who has rights in one namespace: of each no more is
// kept than is judged, and of what is no release's nothing.
const (
	maxLeases  = 5000 // with the label
	maxEntries = 500  // that may be of releases
	maxOfOne   = 8    // entries of one namespace: a release has one, and while its values change more
)

// id is one Lease object.
type id struct {
	types.NamespacedName
	uid types.UID
}

// sight is when a Lease was last seen to be renewed, by this process's clock.
type sight struct {
	version string // the Lease's
	at      time.Time
	renewed bool // it was seen to be; else it was there, and may have ended long ago
}

// listed is the Leases that there are.
type listed struct {
	own     *known                 // of what this process claims; nil: there is none
	entries []entry                // that count
	ended   []coordinationv1.Lease // of this release, which nobody renews: what names them
}

// list reads the Leases. One that is not renewed counts until it was seen not to be for as long
// as it says. If which count is not found out it fails, with what else is known.
func (c *Claim) list(ctx context.Context) (listed, error) {
	r := reading{c: c, now: time.Now(), seen: map[id]sight{}, of: map[string]int{}}
	if err := c.c.Store.List(ctx, r.page); err != nil {
		return r.out, fmt.Errorf("list Leases of releases: %w", err)
	}
	c.seen = r.seen
	var err error
	r.out.entries, err = c.counted(ctx, r.out.entries)
	return r.out, err
}

// reading is one reading of all Leases.
type reading struct {
	c     *Claim
	now   time.Time
	seen  map[id]sight
	of    map[string]int // by namespace, how many entries there are
	count int            // Leases with the label
	out   listed
}

// page takes some Leases in. It fails once there are too many.
func (r *reading) page(leases []coordinationv1.Lease) error {
	for i := range leases {
		r.take(&leases[i])
	}
	switch r.count += len(leases); {
	case r.count > maxLeases:
		return fmt.Errorf("more than %d have label %s", maxLeases, Label)
	case len(r.out.entries) > maxEntries:
		return fmt.Errorf("more than %d may be of releases", maxEntries)
	}
	return nil
}

func (r *reading) take(l *coordinationv1.Lease) {
	us := &r.c.c
	own := l.Namespace == us.Namespace && l.Name == us.Watches.name()
	e, ok := read(l)
	if !ok && !own {
		return
	}
	key := id{types.NamespacedName{Namespace: l.Namespace, Name: l.Name}, l.UID}
	last, before := r.c.seen[key]
	if !before || last.version != l.ResourceVersion {
		last = sight{l.ResourceVersion, r.now, before}
	}
	e.Renewed = last.renewed
	r.seen[key] = last
	switch ended := r.now.Sub(last.at) > lasts(l); {
	case own: // it is taken up, ended or not, whatever others wrote there
		e.Watches = us.Watches
		r.out.own = &known{*l.DeepCopy(), e}
		r.out.entries = append(r.out.entries, e)
	case ended && l.Namespace == us.Namespace:
		r.out.ended = append(r.out.ended, coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, UID: l.UID, ResourceVersion: l.ResourceVersion},
		})
	case !ended:
		r.add(e)
	}
}

// add keeps an entry, of too many of one namespace the oldest.
func (r *reading) add(e entry) {
	if r.of[e.Namespace]++; r.of[e.Namespace] <= maxOfOne {
		r.out.entries = append(r.out.entries, e)
		return
	}
	r.of[e.Namespace]--
	youngest := -1
	for i, other := range r.out.entries {
		own := r.out.own != nil && other.Namespace == r.c.c.Namespace && other.Name == r.out.own.entry.Name
		if other.Namespace == e.Namespace && !own && (youngest < 0 || other.Since.After(r.out.entries[youngest].Since)) {
			youngest = i
		}
	}
	if r.out.entries[youngest].Since.After(e.Since) {
		r.out.entries[youngest] = e
	}
}
