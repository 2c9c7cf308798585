package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"aether.io/aether/test/bench/kube"
	"aether.io/aether/test/bench/rig"
)

// What is measured on Kubernetes.
const (
	existing = 3000 // routes there when a new one comes
	atOnce   = 1000 // routes created at once
	atRest   = 5000 // routes and Services
	resting  = time.Minute

	simulated = 200 // proxies without an Envoy that run a MeshConfig
	perSecond = 100 // edits of it in a storm
	storm     = time.Minute
)

func onKubernetes(ctx context.Context, what, cluster, programs, envoy string, edits, writers int) error {
	r, stop, err := system(ctx, cluster, programs, envoy)
	if err != nil {
		return err
	}
	defer stop()
	switch what {
	case "routes":
		if err := kube.NewRoute(ctx, r, os.Stdout, existing, edits); err != nil {
			return err
		}
		return kube.Flips(ctx, r, os.Stdout, 20, 200*time.Millisecond)
	case "burst":
		return kube.AtOnce(ctx, r, os.Stdout, atOnce)
	case "meshconfig":
		return kube.MeshConfigs(ctx, r, os.Stdout, simulated, edits, kube.Storm{PerSecond: perSecond, Writers: writers, Lasts: storm})
	case "rest":
		return kube.AtRest(ctx, r, os.Stdout, atRest, resting)
	}
	return fmt.Errorf("there is no such measurement")
}

// system is the cluster in a folder, or one that lasts as long as the measurement.
func system(ctx context.Context, cluster, programs, envoy string) (*rig.Rig, func(), error) {
	if cluster != "" {
		r, err := rig.Attach(ctx, cluster)
		if err != nil {
			return nil, nil, err
		}
		return r, r.Close, nil
	}
	dir, err := os.MkdirTemp("", "ab")
	if err != nil {
		return nil, nil, err
	}
	r, err := rig.Start(ctx, rig.Config{Programs: programs, Envoy: envoy, Dir: dir})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, nil, err
	}
	return r, func() { r.Close(); _ = os.RemoveAll(dir) }, nil
}
