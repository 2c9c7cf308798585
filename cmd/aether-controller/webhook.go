package main

import (
	"context"
	"fmt"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/webhook"
	"aether.io/aether/internal/webhook/spire"
)

// makeWebhook makes the admission of MeshConfigs, if there is to be one, and returns its parts.
func (c *controller) makeWebhook() ([]run.Part, error) {
	if c.f.webhookBind == "" {
		return nil, nil
	}
	certificates, follow, err := c.webhookCertificates()
	if err != nil {
		return nil, err
	}
	c.webhook, err = webhook.New(webhook.Config{
		Address: c.f.webhookBind, Certificates: certificates, System: c.f.system,
		ReleaseNamespace: c.f.releaseNamespace, Release: c.releaseConfig, Log: c.log, Registerer: c.metrics,
	})
	if err != nil {
		return nil, err
	}
	return []run.Part{{Name: "webhook certificate", Run: follow}, {Name: "webhook", Run: c.webhook.Run}}, nil
}

// webhookCertificates is where the webhook's certificate comes from, and what follows it.
func (c *controller) webhookCertificates() (webhook.Certificates, func(context.Context) error, error) {
	if c.f.spireEnabled {
		source, err := spire.New(spire.Config{Socket: c.f.spireSocket, ServerName: c.f.webhookServerName, Log: c.log})
		if err != nil {
			return nil, nil, fmt.Errorf("--spire-workload-socket: %w", err)
		}
		return source, source.Run, nil
	}
	files, err := webhook.NewFiles(c.f.webhookCertDir)
	if err != nil {
		return nil, nil, err
	}
	return files, files.Run, nil
}

// releaseConfig is the MeshConfig of the release namespace as it is in effect, nil if there is none.
func (c *controller) releaseConfig() *configv1.MeshConfig {
	k := object.Key{Kind: object.MeshConfig, Namespace: c.f.releaseNamespace, Name: configv1.MeshConfigName}
	config, _ := c.pipeline.Object(k).(*configv1.MeshConfig)
	return config
}
