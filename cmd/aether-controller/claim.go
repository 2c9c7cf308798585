package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/claim"
)

const (
	// deployment is what runs controllers, in the release namespace, and account whose they are.
	deployment = "aether-controller"
	account    = "aether-controller"
	// reasonOverlap is of the Event that tells for which other release this one waits.
	reasonOverlap = "ReleasesOverlap"
)

// makeClaim makes what keeps this release and others apart. While another has what this one is to
// serve this one is not Ready, so that no proxy comes to it, and nobody leads.
func (c *controller) makeClaim(client *rest.Config) error {
	api, err := claim.NewAPI(client, deployment)
	if err != nil {
		return err
	}
	c.claim, err = claim.New(claim.Config{
		Store: api, Namespace: c.f.releaseNamespace, Release: c.f.releaseName, Watches: claim.Watches{Class: c.f.gatewayClass, Namespaces: c.f.watched()},
		Able: func(ctx context.Context, namespace string, right claim.Right) (bool, error) {
			return api.Able(ctx, namespace, account, right)
		},
		OnLoss:  c.overlap,
		OnReach: c.problems.setClaims,
		Log:     c.log, Registerer: c.metrics,
	})
	return err
}

// overlap tells for which other release this one waits; nil: for none.
func (c *controller) overlap(lack error) {
	c.problems.setOverlap(lack)
	if lack != nil {
		c.warn(corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: c.f.releaseNamespace, Name: deployment}, reasonOverlap, lack.Error())
	}
}
