package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"aether.io/aether/test/cluster"
)

// patience is how long what a run deleted may take to be gone: pods end in their own time,
// and their namespaces after them.
const patience = 3 * time.Minute

// kinds are what a run could leave. Pods are there with how often their containers were
// started: a proxy that crashed under the suite is not as it was.
const kinds = "namespaces,services,deployments,replicasets,daemonsets,serviceaccounts,configmaps,secrets," +
	"poddisruptionbudgets,horizontalpodautoscalers,gatewayclasses,gateways,listenersets,httproutes,grpcroutes,backendtlspolicies,referencegrants"

const (
	eachObject = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} {.metadata.finalizers}{"\n"}{end}`
	eachPod    = `jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name} starts {.status.initContainerStatuses[*].restartCount} {.status.containerStatuses[*].restartCount}{"\n"}{end}`
)

// inventory is every object of the cluster that a run could leave, sorted.
func inventory(ctx context.Context, c cluster.Cluster) ([]string, error) {
	var out []string
	for _, ask := range [][]string{{kinds, eachObject}, {"pods", eachPod}} {
		text, err := c.Kubectl(ctx, "", "get", ask[0], "--all-namespaces", "--output="+ask[1])
		if err != nil {
			return nil, err
		}
		out = append(out, strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })...)
	}
	slices.Sort(out)
	return out, nil
}

// awaitInventory waits until the cluster has what it had before, no more and no less.
func awaitInventory(ctx context.Context, c cluster.Cluster, before []string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// Exits: it is as it was; the API cannot be asked; ctx is done.
	for {
		now, err := inventory(ctx, c)
		if err != nil {
			return fmt.Errorf("look at what was left: %w", err)
		}
		added, missing := without(now, before), without(before, now)
		if len(added) == 0 && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the cluster is not what it was\nleft:\n  %s\nmissing:\n  %s", strings.Join(added, "\n  "), strings.Join(missing, "\n  "))
		case <-tick.C:
		}
	}
}

// without is what of list is not in other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}
