package webhook

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"aether.io/aether/internal/logkey"
)

// settle is for how long API servers are given to use a caBundle that can be read from one.
const settle = 5 * time.Second

// chooser picks the certificate of each handshake. One that API servers do not verify yet, as
// its CA is new, is not served while the one before it is valid and verified.
type chooser struct {
	from   Certificates
	trusts func(*tls.Certificate) bool // nil: everything is
	now    func() time.Time
	log    *slog.Logger

	mu       sync.Mutex // guards what follows
	serving  *tls.Certificate
	coming   *tls.Certificate // differs from serving
	trusted  time.Time        // since when coming is, as far as is known; zero: it is not
	complain string           // what is wrong with from, as it was told
}

// choose returns the certificate to serve now.
func (c *chooser) choose() (*tls.Certificate, error) {
	next, err := c.from.Certificate()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(err)
	now := c.now()
	kept := c.serving != nil && now.Before(c.serving.Leaf.NotAfter)
	switch {
	case err != nil && kept:
		return c.serving, nil
	case err != nil:
		return nil, err
	case now.After(next.Leaf.NotAfter):
		if kept {
			return c.serving, nil
		}
		return nil, fmt.Errorf("the webhook's certificate expired at %s", next.Leaf.NotAfter)
	case c.serving == nil || next == c.serving || c.ready(next, kept, now):
		if next != c.serving {
			c.log.Info("the webhook serves a certificate", logkey.NotAfter, next.Leaf.NotAfter)
		}
		c.serving, c.coming = next, nil
	}
	return c.serving, nil
}

// ready reports whether next can take the place of the one that is served.
func (c *chooser) ready(next *tls.Certificate, kept bool, now time.Time) bool {
	if !kept || c.trusts == nil {
		return true
	}
	if next != c.coming {
		c.coming, c.trusted = next, time.Time{}
	}
	is, was := c.trusts(next), c.trusts(c.serving)
	switch {
	case !is:
		c.trusted = time.Time{}
		return false
	case !was:
		return true // the sooner the better
	case c.trusted.IsZero():
		c.trusted = now
	}
	return now.Sub(c.trusted) >= settle
}

// tell logs what is wrong with the source of certificates once, and when it is over.
func (c *chooser) tell(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == c.complain {
		return
	}
	c.complain = text
	if err != nil {
		c.log.Warn("the webhook has no certificate, or keeps the last one", logkey.Error, err)
	} else {
		c.log.Info("the webhook's certificate is good again")
	}
}
