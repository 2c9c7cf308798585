package main

import (
	"context"

	"k8s.io/client-go/rest"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/election"
	"aether.io/aether/internal/kept"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/source"
)

// The ConfigMaps of the release namespace in which a controller leaves to the next what
// the API does not say.
const (
	lastGoodName   = "aether-last-good"
	quarantineName = "aether-quarantine"
)

// makeKeeper makes what keeps the last good versions of objects that are not admitted as they
// are. They are sealed with a key of the CA's, which every replica has, so that no right to write
// Secrets is needed.
func (c *controller) makeKeeper(client *rest.Config) (*kept.Keeper, error) {
	place, err := configmap.New(configmap.Config{Client: client, Namespace: c.f.releaseNamespace, Name: lastGoodName, Log: c.log})
	if err != nil {
		return nil, err
	}
	return kept.New(kept.Config{
		Place:   place,
		Key:     func() ([]byte, error) { return c.ca.Derive(kept.Purpose) },
		Await:   c.awaitCA,
		Used:    c.used,
		Synced:  func() bool { return c.pipeline.Synced() },
		OnFault: func(err error) { c.problems.setMemory(place.String(), err) },
		Log:     c.log,
	})
}

// used is which objects are in effect, and the release namespace's MeshConfig: it is for every
// Gateway to come, also while there is none.
func (c *controller) used(keys []object.Key) map[object.Key]bool {
	used := c.pipeline.Used(keys)
	used[object.Key{Kind: object.MeshConfig, Namespace: c.f.releaseNamespace, Name: configv1.MeshConfigName}] = true
	return used
}

// makeDocket keeps convictions.
func (c *controller) makeDocket(client *rest.Config) (docket.Map, error) {
	place, err := configmap.New(configmap.Config{Client: client, Namespace: c.f.releaseNamespace, Name: quarantineName, Log: c.log})
	if err != nil {
		return docket.Map{}, err
	}
	return docket.Map{Place: place, OnFault: func(err error) { c.problems.setMemory(place.String(), err) }}, nil
}

// leaderDocket has convictions saved in the leader's term only, at whose beginning all are.
type leaderDocket struct {
	pipeline.Store
	term *election.Term
}

// Save implements pipeline.Store.
func (d leaderDocket) Save(ctx context.Context, convicted map[object.Key]quarantine.Conviction) error {
	_, err := d.term.Do(ctx, func(ctx context.Context) error { return d.Store.Save(ctx, convicted) })
	return err
}

// looking has it looked after each batch whether what is used is kept.
func looking(follow func(context.Context, func(context.Context, source.Batch) error) error, keeper *kept.Keeper) func(context.Context, func(context.Context, source.Batch) error) error {
	return func(ctx context.Context, sink func(context.Context, source.Batch) error) error {
		return follow(ctx, func(ctx context.Context, b source.Batch) error {
			defer keeper.Look()
			return sink(ctx, b)
		})
	}
}

// watchKey has last good versions sealed anew when the CA's key is another.
func (c *controller) watchKey(ctx context.Context, keeper *kept.Keeper) error {
	// Exits: ctx is done.
	for {
		changed := c.ca.Changed()
		keeper.Look()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
