package main

import (
	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/delivery/verdict"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/status"
)

// makeDelivery makes what tells, in the statuses of MeshConfigs, whether what they have proxies
// export arrives at the collector.
func (c *controller) makeDelivery() error {
	to := verdict.Collector{Address: c.f.otlp.Endpoint, Metrics: c.f.system.OTelEnabled && c.f.otlp.Endpoint != "" && c.f.otlp.Authorities == ""}
	if c.f.otlp.Authorities != "" {
		to.CA = object.Key{Kind: object.ConfigMap, Namespace: c.f.releaseNamespace, Name: c.f.otlp.Authorities}
	}
	var err error
	c.delivery, err = verdict.New(verdict.Config{
		Collector: to, ReleaseNamespace: c.f.releaseNamespace, Proxies: c.world,
		Tell: func(t verdict.Told) {
			c.statuses.Add(t.Key, status.Addition{UID: t.UID, Generation: t.Generation, Condition: t.Condition, Absent: t.Absent, Minor: true})
		},
		Forget:     func(k object.Key) { c.statuses.Withdraw(k, configv1.MeshConfigTelemetryDelivered) },
		Say:        func(wrong string) { c.problems.setCollector(to.Address, wrong) },
		Log:        c.log,
		Registerer: c.metrics,
	})
	return err
}

// judged has statuses seen by who judges what is delivered.
func (c *controller) judged() pipeline.Statuses { return judged{c.statuses, c.delivery} }

type judged struct {
	*status.Engine
	delivery *verdict.Engine
}

// Update implements pipeline.Statuses.
func (j judged) Update(statuses []routing.Status) {
	j.Engine.Update(statuses)
	j.delivery.Update(statuses)
}
