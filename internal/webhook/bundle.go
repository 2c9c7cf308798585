package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	admissionac "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/svid"
)

const (
	// Annotation of a ValidatingWebhookConfiguration gives the controller its caBundle to keep, if
	// it has AnnotationValue. Without it nothing is written there.
	Annotation = "config.aether.io/ca-bundle"
	// AnnotationValue is the only one that means something.
	AnnotationValue = "controller"
	// HookName is the webhook's name in the configuration.
	HookName = "meshconfig.config.aether.io"

	fieldManager = "aether-controller"
	callTimeout  = 10 * time.Second
	// The pauses before a write or a watch that failed, doubled with each failure.
	firstPause = 250 * time.Millisecond
	lastPause  = 30 * time.Second
	// What somebody takes away is put back at once, and ever later if they go on: after
	// firstRestore, doubled up to lastRestore. Who left it alone for longer than that begins anew.
	firstRestore = time.Second
	lastRestore  = 5 * time.Minute
)

// Roots is what API servers are to verify the webhook's certificate with: the roots of the
// certificate that is served now, of the one that will be next as soon as they are known, and of
// those before as long as one of a replica may be served.
type Roots interface {
	// Roots is the set as it is, empty while it is not known.
	Roots() svid.Bundle
	// Changed can be received from once the set has changed. Take it before reading the set. There
	// is one reader.
	Changed() <-chan struct{}
}

// BundleConfig is what a Bundle is made from.
type BundleConfig struct {
	// Client is required; its rights on the configuration: get, list, watch and patch.
	Client        *rest.Config
	Configuration string                // required: name of the ValidatingWebhookConfiguration
	Roots         Roots                 // required
	Log           *slog.Logger          // nil: none
	Registerer    prometheus.Registerer // nil: no metrics
}

// Bundle keeps the caBundle of the configuration by which API servers call the webhook right,
// and touches nothing else of it. Where the configuration is not there, has no webhook of
// HookName or not the Annotation, it waits.
type Bundle struct {
	c      BundleConfig
	log    *slog.Logger
	client admissionclient.ValidatingWebhookConfigurationInterface
	writes *prometheus.CounterVec

	mu      sync.Mutex // guards what follows
	now     seen
	changed chan struct{} // closed and replaced when now changes
}

// seen is a configuration as the API has it.
type seen struct {
	uid    types.UID // empty: there is none, or it is not known
	ours   bool      // the caBundle is ours to keep
	bundle []byte
	pool   *x509.CertPool // of bundle
}

// NewBundle checks c. It does not call the API.
func NewBundle(c BundleConfig) (*Bundle, error) {
	if c.Client == nil || c.Configuration == "" || c.Roots == nil {
		return nil, errors.New("a caBundle needs a client configuration, the name of a configuration and roots")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	client, err := admissionclient.NewForConfig(rest.CopyConfig(c.Client)) // watches last: calls have deadlines of their own
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		c: c, log: c.Log, client: client.ValidatingWebhookConfigurations(), changed: make(chan struct{}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aether_webhook_ca_bundle_writes_total",
			Help: "Writes of the webhook configuration's caBundle, by result: written, failed.",
		}, []string{"result"}),
	}
	for _, r := range []string{"written", "failed"} {
		b.writes.WithLabelValues(r)
	}
	if c.Registerer != nil {
		return b, c.Registerer.Register(b.writes)
	}
	return b, nil
}

// Trusts reports whether API servers verify a certificate, by what the API has: where nobody
// calls, they do.
func (b *Bundle) Trusts(cert *tls.Certificate) bool {
	b.mu.Lock()
	pool := b.now.pool
	b.mu.Unlock()
	if pool == nil {
		return true
	}
	between := x509.NewCertPool()
	for _, der := range cert.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	_, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between})
	return err == nil
}

// Run follows the configuration until ctx is done. Each replica runs it.
func (b *Bundle) Run(ctx context.Context) error {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, b.c.Configuration).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			o.FieldSelector = selector
			return b.client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return b.client.Watch(ctx, o)
		},
	}
	reflector := cache.NewReflectorWithOptions(lw, &admissionregistrationv1.ValidatingWebhookConfiguration{}, follower{b}, cache.ReflectorOptions{Name: "aether webhook"})
	pause, told := firstPause, ""
	// Exits: ctx is done.
	for {
		began := time.Now()
		err := reflector.ListAndWatchWithContext(ctx)
		if time.Since(began) > lastPause {
			pause, told = firstPause, ""
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			b.log.Warn("the webhook's configuration cannot be followed; will retry", logkey.Object, b.c.Configuration, logkey.Error, err)
		}
		if err := run.Sleep(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, lastPause)
	}
}

// Lead writes the caBundle whenever it is not what it should be, until ctx is done. Of several
// replicas only the leader runs it.
func (b *Bundle) Lead(ctx context.Context) error {
	p := pace{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Exits: ctx is done.
	for {
		rooted, changed := b.c.Roots.Changed(), b.next()
		want, now := b.c.Roots.Roots().PEM(), b.seen()
		var due <-chan time.Time
		if now.uid != "" && now.ours && len(want) > 0 && !bytes.Equal(want, now.bundle) {
			wait := p.wait(want, time.Now())
			if wait <= 0 {
				p.wrote(want, time.Now(), b.write(ctx, now.uid, want))
				wait = p.wait(want, time.Now())
			}
			timer.Reset(max(wait, firstPause)) // the watch tells sooner that it is right
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-rooted:
		case <-changed:
		case <-due:
		}
	}
}

// write applies the one field. The uid keeps it from making a configuration that is not there.
func (b *Bundle) write(ctx context.Context, uid types.UID, bundle []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	apply := admissionac.ValidatingWebhookConfiguration(b.c.Configuration).WithUID(uid).WithWebhooks(
		admissionac.ValidatingWebhook().WithName(HookName).WithClientConfig(admissionac.WebhookClientConfig().WithCABundle(bundle...)))
	_, err := b.client.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		b.writes.WithLabelValues("failed").Inc()
		if ctx.Err() == nil {
			b.log.Warn("the webhook's caBundle cannot be written; will retry", logkey.Object, b.c.Configuration, logkey.Error, err)
		}
		return fmt.Errorf("write caBundle of %s: %w", b.c.Configuration, err)
	}
	b.writes.WithLabelValues("written").Inc()
	b.log.Info("the webhook's caBundle is written", logkey.Object, b.c.Configuration)
	return nil
}

func (b *Bundle) seen() seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

func (b *Bundle) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}
