package webhook

import (
	"bytes"
	"crypto/x509"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// follower takes the one configuration that is followed. It implements cache.ReflectorStore.
type follower struct{ b *Bundle }

// Add implements cache.ReflectorStore.
func (f follower) Add(o any) error { return f.Update(o) }

// Update implements cache.ReflectorStore.
func (f follower) Update(o any) error {
	c, _ := o.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	f.b.see(c)
	return nil
}

// Delete implements cache.ReflectorStore.
func (f follower) Delete(any) error {
	f.b.see(nil)
	return nil
}

// Replace implements cache.ReflectorStore.
func (f follower) Replace(list []any, _ string) error {
	if len(list) == 0 {
		return f.Delete(nil)
	}
	return f.Update(list[0])
}

// Resync implements cache.ReflectorStore.
func (f follower) Resync() error { return nil }

// see takes the configuration as the API has it; nil: it has none.
func (b *Bundle) see(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	now := seen{}
	if c != nil {
		now.uid = c.UID
		for i := range c.Webhooks {
			if c.Webhooks[i].Name == HookName {
				now.ours = c.Annotations[Annotation] == AnnotationValue
				now.bundle = c.Webhooks[i].ClientConfig.CABundle
				now.pool = x509.NewCertPool()
				now.pool.AppendCertsFromPEM(now.bundle)
			}
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.uid == b.now.uid && now.ours == b.now.ours && bytes.Equal(now.bundle, b.now.bundle) {
		return
	}
	b.now = now
	close(b.changed)
	b.changed = make(chan struct{})
}

// pace says when to write. A bundle that was not written before is written at once; one that
// failed, or that somebody takes away, ever later.
type pace struct {
	bundle []byte    // what was written last, or tried
	at     time.Time // when
	failed bool
	pause  time.Duration // before it is written again
}

// wait is for how long bundle is not to be written yet.
func (p *pace) wait(bundle []byte, now time.Time) time.Duration {
	if !bytes.Equal(bundle, p.bundle) {
		return 0
	}
	return p.at.Add(p.pause).Sub(now)
}

// wrote notes that bundle was written, or that it could not be.
func (p *pace) wrote(bundle []byte, now time.Time, err error) {
	first, last := firstRestore, lastRestore
	if err != nil {
		first, last = firstPause, lastPause
	}
	again := bytes.Equal(bundle, p.bundle) && p.failed == (err != nil) && now.Sub(p.at) <= 2*last
	switch {
	case !again && err == nil:
		p.pause = 0 // the first to take it away does so once
	case !again || p.pause == 0:
		p.pause = first
	default:
		p.pause = min(2*p.pause, last)
	}
	p.bundle, p.at, p.failed = bundle, now, err != nil
}
