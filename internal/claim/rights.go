package claim

import (
	"context"
	"time"
)

// Leases are anybody's to write who has rights in a single namespace, so what one says counts
// only as far as the account of its release has rights.

const (
	// keepYes and keepNo are how long it is known that a release has a right, and that it has not.
	keepYes, keepNo = 5 * time.Minute, time.Minute
	// maxKnown bounds the answers that are kept; more are asked for in each look.
	maxKnown = 4096
)

// Right is what a release has that really watches what it says. The zero one every release has:
// to ask whom a token stands for, which nobody can give who has rights in single namespaces only.
type Right struct {
	Class     string // to write the status of that GatewayClass
	Namespace string // to list Gateways in that namespace; "*": in all
}

// question is whether the release of a namespace has a right.
type question struct {
	namespace string
	right     Right
}

// answer is what is known of a right.
type answer struct {
	can   bool
	until time.Time
}

// counted is those of all entries that count. It fails if that is not found out; what was found
// out is kept.
func (c *Claim) counted(ctx context.Context, all []entry) ([]entry, error) {
	now := time.Now()
	for key, known := range c.able {
		if now.After(known.until) {
			delete(c.able, key)
		}
	}
	var out []entry
	for _, e := range all {
		if e.Namespace != c.c.Namespace {
			can, err := c.rightful(ctx, e)
			if err != nil {
				return nil, err
			}
			if !can {
				continue
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// rightful reports whether what an entry says can be so: its release has the rights of one, and
// one of those that it would have if it watches what this one is to watch.
func (c *Claim) rightful(ctx context.Context, e entry) (bool, error) {
	if c.c.Able == nil {
		return true, nil
	}
	can, err := c.may(ctx, question{e.Namespace, Right{}})
	if err != nil || !can {
		return false, err
	}
	for _, r := range proofs(c.c.Watches, e) {
		if can, err = c.may(ctx, question{e.Namespace, r}); err != nil || can {
			return can, err
		}
	}
	return false, nil
}

// proofs are rights of which its release has at least one if an entry is true; at most one more
// than there are namespaces in ours.
func proofs(ours Watches, e entry) []Right {
	if e.Watches.Namespaces == nil {
		return []Right{{Namespace: everywhere}}
	}
	var out []Right
	if ours.Namespaces != nil {
		for _, i := range common(ours, e.Watches) {
			out = append(out, Right{Class: i.class, Namespace: i.namespace})
		}
	}
	if len(out) == 0 { // its own is always one of them
		out = append(out, Right{Namespace: e.Namespace})
	}
	return out
}

// may finds out whether a release has a right.
func (c *Claim) may(ctx context.Context, q question) (bool, error) {
	if known, have := c.able[q]; have {
		return known.can, nil
	}
	can, err := c.c.Able(ctx, q.namespace, q.right)
	if err != nil {
		return false, err
	}
	keep := keepNo
	if can {
		keep = keepYes
	}
	if len(c.able) < maxKnown {
		c.able[q] = answer{can, time.Now().Add(keep)}
	}
	return can, nil
}
