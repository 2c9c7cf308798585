package main

import (
	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/webhook"
)

// makeWebhook makes the admission of MeshConfigs, if there is to be one, and returns its parts.
func (c *controller) makeWebhook() ([]run.Part, error) {
	if c.f.webhookBind == "" {
		return nil, nil
	}
	files, err := webhook.NewFiles(c.f.webhookCertDir)
	if err != nil {
		return nil, err
	}
	c.webhook, err = webhook.New(webhook.Config{
		Address: c.f.webhookBind, Certificates: files, System: c.f.system,
		ReleaseNamespace: c.f.releaseNamespace, Release: c.releaseConfig, Log: c.log, Registerer: c.metrics,
	})
	if err != nil {
		return nil, err
	}
	return []run.Part{{Name: "webhook certificate", Run: files.Run}, {Name: "webhook", Run: c.webhook.Run}}, nil
}

// releaseConfig is the MeshConfig of the release namespace as it is in effect, nil if there is none.
func (c *controller) releaseConfig() *configv1.MeshConfig {
	k := object.Key{Kind: object.MeshConfig, Namespace: c.f.releaseNamespace, Name: configv1.MeshConfigName}
	config, _ := c.pipeline.Object(k).(*configv1.MeshConfig)
	return config
}
