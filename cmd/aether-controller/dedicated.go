package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/attest/owner"
	cakube "aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/event"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// accounts answers the bootstrap allow list from the pipeline, and, where there are pods,
// from the API.
type accounts struct {
	p      *pipeline.Pipeline
	owners *owner.Checker // nil: there are no pods
}

// HasAccount reports whether a live dedicated Gateway of the namespace runs under the account.
func (a accounts) HasAccount(namespace, account string) bool {
	return len(a.of(namespace, account)) > 0
}

// Owned implements bootstrap.Owners. Of two Gateways whose names give one account, one has
// the Deployment.
func (a accounts) Owned(ctx context.Context, w svid.Workload) error {
	err := fmt.Errorf("%w: no live dedicated Gateway", svid.ErrNotAllowed)
	for _, gw := range a.of(w.Namespace, w.ServiceAccount) {
		err = a.owners.Check(ctx, w, owner.Gateway{
			Name: key.Name{Namespace: gw.Namespace, Name: gw.Name}, Class: string(gw.Spec.GatewayClassName), UID: gw.UID,
		})
		if err == nil {
			return nil
		}
	}
	return err
}

// of is the dedicated Gateways whose proxies run under an account: one, but for names that
// collide.
func (a accounts) of(namespace, account string) []*gatewayv1.Gateway {
	return slices.DeleteFunc(a.p.DedicatedIn(namespace), func(gw *gatewayv1.Gateway) bool {
		own, err := spiffeid.DedicatedAccount(gw.Name, string(gw.Spec.GatewayClassName))
		return err != nil || own != account
	})
}

// proxyTemplate reads the pod of shared proxies, from which those of dedicated Gateways are
// made; nil without one.
func (f *flags) readTemplate() (*pod.Template, error) {
	if f.proxyTemplate == "" {
		return nil, nil //nolint:nilnil // that there is none is no error
	}
	text, err := os.ReadFile(f.proxyTemplate)
	if err != nil {
		return nil, fmt.Errorf("--proxy-template: %w", err)
	}
	template, err := pod.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("--proxy-template %s: %w", f.proxyTemplate, err)
	}
	return template, nil
}

// lack has the status of Gateways say what they do not have.
func (c *controller) lack(lacks map[key.Name]condition.Problem) {
	out := make(map[object.Key]condition.Problem, len(lacks))
	for gw, why := range lacks {
		out[gw.Object(object.Gateway)] = why
	}
	c.statuses.Lack(out)
}

// bundles is the namespaces that have a trust bundle of ours, as the source saw it.
type bundles struct {
	mu sync.Mutex
	in map[string]bool
}

func (b *bundles) observe(changes []object.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range changes {
		if c.Key.Kind != object.ConfigMap || c.Key.Name != cakube.BundleName {
			continue
		}
		m, there := c.Object.(*corev1.ConfigMap)
		if there && m.Labels[front.ManagedByLabel] == front.FieldManager {
			b.in[c.Key.Namespace] = true
		} else {
			delete(b.in, c.Key.Namespace)
		}
	}
}

func (b *bundles) list() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.in))
}

// trusting is the namespaces whose proxies need the trust bundle: the release's, and every
// one with a dedicated Gateway.
func (c *controller) trusting() []string {
	return append(c.pipeline.DedicatedNamespaces(), c.f.releaseNamespace)
}

// trustedInVain is the namespaces with a trust bundle that nobody there needs any more.
func (c *controller) trustedInVain() []string {
	if !c.pipeline.Synced() { // which Gateways there are is not known
		return nil
	}
	needed := c.trusting()
	return slices.DeleteFunc(c.bundles.list(), func(ns string) bool { return slices.Contains(needed, ns) })
}

// trustTaken tells of the namespaces in which a ConfigMap of somebody else is where the trust
// bundle is to be.
func (c *controller) trustTaken(namespaces []string) {
	for _, ns := range c.problems.setTrust(namespaces) {
		for _, gw := range c.pipeline.DedicatedIn(ns) {
			c.warn(event.Regarding(gw), reasonTrustTaken, trustTaken)
		}
	}
}
