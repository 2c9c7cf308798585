package main

import (
	"context"
	"fmt"
	"sync/atomic"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/webhook"
	"aether.io/aether/internal/webhook/spire"
)

// makeWebhook makes the admission of MeshConfigs, if there is to be one. Where its certificate
// is not in files, whom API servers trust is kept right as well.
func (c *controller) makeWebhook() error {
	if c.f.webhookBind == "" {
		return nil
	}
	certificates, roots, err := c.webhookCertificates()
	if err != nil {
		return err
	}
	config := webhook.Config{
		Address: c.f.webhookBind, Certificates: certificates, System: c.f.system,
		ReleaseNamespace: c.f.releaseNamespace, Release: c.release.get, Wrap: c.exports.HTTP("admission review"), Log: c.log, Registerer: c.metrics,
	}
	if roots != nil {
		client, err := clientConfig(c.f.kubeconfig)
		if err != nil {
			return err
		}
		c.bundle, err = webhook.NewBundle(webhook.BundleConfig{
			Client: client, Configuration: c.f.webhookConfiguration, Roots: roots, Log: c.log, Registerer: c.metrics,
		})
		if err != nil {
			return err
		}
		config.Trusts = c.bundle.Trusts
		c.platform.parts = append(c.platform.parts, run.Part{Name: "webhook configuration", Run: c.bundle.Run})
	}
	if c.webhook, err = webhook.New(config); err != nil {
		return err
	}
	c.platform.parts = append(c.platform.parts, run.Part{Name: "webhook", Run: c.webhook.Run})
	return nil
}

// webhookCertificates is where the webhook's certificate comes from: SPIRE, files, or the CA of
// the discovery channel; and what to verify it with, nil if others tell API servers.
func (c *controller) webhookCertificates() (webhook.Certificates, webhook.Roots, error) {
	follow := func(part func(context.Context) error) {
		c.platform.parts = append(c.platform.parts, run.Part{Name: "webhook certificate", Run: part})
	}
	switch {
	case c.f.spireEnabled:
		source, err := spire.New(spire.Config{Socket: c.f.spireSocket, ServerName: c.f.webhookServerName, Log: c.log})
		if err != nil {
			return nil, nil, fmt.Errorf("--spire-workload-socket: %w", err)
		}
		follow(source.Run)
		return source, source, nil
	case c.f.webhookCertDir != "":
		files, err := webhook.NewFiles(c.f.webhookCertDir)
		if err != nil {
			return nil, nil, err
		}
		follow(files.Run)
		return files, nil, nil
	}
	own := c.ca.Named(c.f.webhookServerName)
	return own, own, nil
}

// leadBundle is the leader's part that keeps whom API servers trust right, where that is ours to do.
func (c *controller) leadBundle(ctx context.Context) error {
	if c.bundle == nil {
		<-ctx.Done()
		return ctx.Err()
	}
	return c.bundle.Lead(ctx)
}

// releaseConfig is the MeshConfig of the release namespace as it is in effect. Reviews read it,
// which are not to wait for what the pipeline is at.
type releaseConfig struct {
	namespace string // the release's
	now       atomic.Pointer[configv1.MeshConfig]
}

// observe takes changes of objects that are in effect.
func (r *releaseConfig) observe(changes []object.Change) {
	for _, c := range changes {
		if c.Key == (object.Key{Kind: object.MeshConfig, Namespace: r.namespace, Name: configv1.MeshConfigName}) {
			config, _ := c.Object.(*configv1.MeshConfig)
			r.now.Store(config)
		}
	}
}

// get returns it, nil if there is none. It is not to be changed.
func (r *releaseConfig) get() *configv1.MeshConfig { return r.now.Load() }
