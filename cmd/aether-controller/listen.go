package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/resource"
)

// trustName is the trust bundle's name in every scope.
const trustName = "trust-bundle"

// awaitCA waits until the CA can sign: before, the listeners are not open.
func (c *controller) awaitCA(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ca.Ready():
		return nil
	}
}

func (c *controller) serveBootstrap(ctx context.Context) error {
	if err := c.awaitCA(ctx); err != nil {
		return err
	}
	l, err := c.platform.bootstrap(ctx)
	if err != nil {
		return err
	}
	c.bootstrap.Store(true)
	return c.issuer.Serve(ctx, l, c.ca.ServerTLS(c.id))
}

func (c *controller) serveStreams(ctx context.Context) error {
	if err := c.awaitCA(ctx); err != nil {
		return err
	}
	l, err := c.platform.stream(ctx)
	if err != nil {
		return err
	}
	c.stream.Store(true)
	return c.streams.Serve(ctx, l, c.ca.MutualTLS(c.id))
}

// inherited takes over a listening socket that the supervisor opened.
func inherited(fd int, name string) func(context.Context) (net.Listener, error) {
	return func(context.Context) (net.Listener, error) {
		file := os.NewFile(uintptr(fd), name)
		if file == nil {
			return nil, fmt.Errorf("--%s-fd %d is no file descriptor", name, fd)
		}
		defer file.Close()
		l, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("--%s-fd %d: %w", name, fd, err)
		}
		return l, nil
	}
}

// shareTrust gives every scope the roots as they are, and tells when the CA is ready.
func (c *controller) shareTrust(ctx context.Context) error {
	began := time.Now()
	if err := c.awaitCA(ctx); err != nil {
		return err
	}
	ready := time.Now()                  // before it is used, so that this is told before what comes of it
	for first := true; ; first = false { // left when ctx is done
		changed := c.ca.Changed()
		roots := c.ca.Roots()
		r, err := resource.New(trustName, &discoveryv1.TrustBundle{RootsDer: roots.DER()})
		if err != nil {
			return err
		}
		c.pipeline.Share(r)
		if first {
			c.moments.Add(ready, journal.CAReady, fmt.Sprintf("CA ready, %s after the controller's start", ready.Sub(began).Round(time.Millisecond)), roots.Fingerprints())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
