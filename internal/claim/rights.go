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
			can, err := c.may(ctx, e.Namespace)
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

// may reports whether the release of a namespace can get in the way of others.
func (c *Claim) may(ctx context.Context, namespace string) (bool, error) {
	if c.c.Able == nil {
		return true, nil
	}
	if known, have := c.able[namespace]; have {
		return known.can, nil
	}
	can, err := c.c.Able(ctx, namespace)
	if err != nil {
		return false, err
	}
	keep := keepNo
	if can {
		keep = keepYes
	}
	if len(c.able) < maxKnown {
		c.able[namespace] = answer{can, time.Now().Add(keep)}
	}
	return can, nil
}
