package main

import (
	"k8s.io/client-go/rest"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/projection"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/seed"
	"aether.io/aether/internal/status"
)

// makeProjection makes what has MeshConfigs in the ConfigMap that agents mount. What became of
// each is a condition of its status.
func (c *controller) makeProjection(client *rest.Config) (*projection.Engine, error) {
	name := projection.Name(c.f.releaseName)
	place, err := configmap.NewPart(configmap.Config{Client: client, Namespace: c.f.releaseNamespace, Name: name, Log: c.log}, projection.Ours)
	if err != nil {
		return nil, err
	}
	return projection.New(projection.Config{
		Place: place, Namespace: c.f.releaseNamespace, Name: name,
		Tell: func(t projection.Told) {
			c.statuses.Add(t.Key, status.Addition{UID: t.UID, Generation: t.Generation, Condition: t.Condition})
		},
		Forget:     func(k object.Key) { c.statuses.Withdraw(k, configv1.MeshConfigProjected) },
		Log:        c.log,
		Registerer: c.metrics,
	})
}

// seeding is the leader's part that makes the default MeshConfig; none if others do, or nobody.
func (c *controller) seeding(client *rest.Config) ([]run.Part, error) {
	if !c.f.seed {
		return nil, nil
	}
	s, err := seed.New(seed.Config{Client: client, Namespace: c.f.releaseNamespace, Name: seed.Name(c.f.releaseName), Log: c.log})
	if err != nil {
		return nil, err
	}
	return []run.Part{{Name: "seeding", Run: s.Run}}, nil
}
