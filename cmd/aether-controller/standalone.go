package main

import (
	"context"
	"fmt"
	"time"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/record"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/statedir"
	"aether.io/aether/internal/status"
)

// standalone is a controller without Kubernetes: manifests in a directory, and a state
// directory for all else.
func (c *controller) standalone() (platform, error) {
	state, err := statedir.Of(c.f.stateDir)
	if err != nil {
		return platform{}, err
	}
	files, err := source.NewDirectory(source.DirectoryConfig{
		Dir: c.f.directory, StateDir: state.Root(), Log: c.log,
		Progress: func(done, of int) {
			c.moments.Add(time.Now(), journal.Progress, fmt.Sprintf("%d of %d files are read", done, of), nil)
		},
	})
	if err != nil {
		return platform{}, err
	}
	served, err := record.New(record.Config{Path: state.Served(), OnFault: func(err error) { c.problems.setMemory(state.Served(), err) }})
	if err != nil {
		return platform{}, err
	}
	statuses := status.NewFiles(state.Status())
	return platform{
		alone:     true,
		caPlace:   state.CA(),
		store:     ca.FileStore{Dir: state.CA()},
		publisher: ca.BundleFile{Path: state.TrustBundle()},
		attester:  attest.NewTokenFile(state.Tokens()),
		sink:      statuses,
		sweep:     statuses.KeepOnly,
		docket:    docket.File{Path: state.Convictions()},
		fronts:    served,
		pooled:    true,
		follow: func(ctx context.Context, take func(context.Context, source.Batch) error) error {
			c.problems.setMemory(state.Served(), served.Recall())
			return files.Run(ctx, func(ctx context.Context, b source.Batch) error {
				b.Changes = served.Before(b.Changes)
				return take(ctx, b)
			})
		},
		bootstrap: inherited(c.f.bootstrapFD, "bootstrap"),
		stream:    inherited(c.f.streamFD, "stream"),
		parts: []run.Part{
			{Name: "state directory", Run: func(ctx context.Context) error { return c.watchState(ctx, state, files, served) }},
			{Name: "record of Gateways", Run: served.Run},
			{Name: "inspection", Run: func(ctx context.Context) error {
				return inspect.Serve(ctx, c.log, state.ControllerSocket(), c.handler())
			}},
		},
	}, nil
}

// lookAtState is how often it is looked whether the state directory is still the same.
const lookAtState = time.Second

// watchState has all that is in the state directory written again when it was made anew.
func (c *controller) watchState(ctx context.Context, state statedir.Dir, files *source.Directory, served *record.Record) error {
	made, err := state.Made()
	if err != nil {
		c.log.Warn("the state directory is nobody's", logkey.Error, err)
	}
	tick := time.NewTicker(lookAtState)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := state.Made()
		if err != nil || now.Same(made) {
			continue
		}
		made = now
		c.log.Warn("the state directory was made anew; writing it again")
		files.Rewrite()
		served.Rewrite()
		c.statuses.Rewrite()
	}
}
