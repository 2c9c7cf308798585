package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"google.golang.org/protobuf/encoding/protojson"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
)

// handler answers questions about this controller.
func (c *controller) handler() http.Handler {
	return inspect.Handler(c.log, c.moments, map[string]inspect.Page{
		inspect.ProxiesPath:   func(*http.Request) (any, error) { return c.world.Proxies(), nil },
		inspect.ResourcesPath: c.resources,
		inspect.IdentityPath:  func(*http.Request) (any, error) { return c.identity(), nil },
		inspect.StatusPath:    func(*http.Request) (any, error) { return c.documents() },
		inspect.ConfigPath:    func(*http.Request) (any, error) { return c.config() },
		inspect.ProblemsPath:  func(*http.Request) (any, error) { return append(c.problems.get(), deletions(c.pipeline)...), nil },
	}, map[string]http.Handler{inspect.MetricsPath: inspect.Metrics(c.metrics)})
}

// resources lists those of one scope, or of all.
func (c *controller) resources(r *http.Request) (any, error) {
	want := r.URL.Query().Get("scope")
	out, found := []inspect.Resource{}, false
	for _, s := range c.world.Scopes() {
		if want == "" || s.String() == want {
			found = true
			out = append(out, inspect.Resources(s.String(), c.world.Resources(s))...)
		}
	}
	if want != "" && !found {
		return nil, fmt.Errorf("no scope %q", want)
	}
	return out, nil
}

func (c *controller) identity() inspect.Identity {
	roots := c.ca.Roots()
	v := inspect.Identity{TrustDomain: c.id.TrustDomain().Name(), Roots: roots.Fingerprints()}
	if list := roots.Certificates(); len(list) > 0 {
		v.CA = inspect.CA{KeyID: fmt.Sprintf("%x", list[0].SubjectKeyId), Subject: list[0].Subject.String(), NotAfter: list[0].NotAfter}
	}
	for _, e := range c.issuer.Audit() {
		v.Issued = append(v.Issued, inspect.Issuance{
			At: e.Time, Identity: e.Identity, Pod: e.Pod, Node: e.Node, Serial: e.Serial, NotAfter: e.NotAfter, Result: string(e.Result), Reason: string(e.Reason),
		})
	}
	return v
}

func (c *controller) documents() (inspect.Statuses, error) {
	out := inspect.Statuses{Settled: c.statuses.Settled(), Documents: []inspect.StatusDocument{}}
	// An object gets its status before it is a candidate: one that was a candidate before its
	// status was looked for, and is one still, has none. One whose deletion is under way may be
	// taken for such a one, for the moment between the two.
	idle := map[object.Key]bool{}
	for _, k := range c.changes.Candidates() {
		idle[k] = true
	}
	for _, d := range c.statuses.Documents() {
		delete(idle, d.Key)
		text, err := json.Marshal(d.Status)
		if err != nil {
			return out, fmt.Errorf("encode status of %s: %w", d.Key, err)
		}
		out.Documents = append(out.Documents, inspect.StatusDocument{Kind: string(d.Key.Kind), Namespace: d.Key.Namespace, Name: d.Key.Name, Generation: d.Generation, Status: text})
	}
	for _, k := range c.changes.Candidates() {
		if idle[k] {
			out.Idle = append(out.Idle, k.String())
		}
	}
	return out, nil
}

// config is the mesh configuration that is in effect.
func (c *controller) config() (inspect.Config, error) {
	out := inspect.Config{ReleaseNamespace: c.f.releaseNamespace, System: inspect.SystemOf(c.f.system), MeshConfigs: []inspect.MeshConfig{}}
	for _, o := range c.pipeline.Objects(object.MeshConfig) {
		mesh, is := o.(*configv1.MeshConfig)
		if !is || mesh.Name != configv1.MeshConfigName {
			continue
		}
		spec, err := protojson.Marshal(mesh.Spec)
		if err != nil {
			return out, fmt.Errorf("encode MeshConfig of %s: %w", mesh.Namespace, err)
		}
		out.MeshConfigs = append(out.MeshConfigs, inspect.MeshConfig{Namespace: mesh.Namespace, Generation: mesh.Generation, Spec: spec})
	}
	return out, nil
}

// deletions names the classes of ours that are being deleted while Gateways use them: who made
// the deletion waits, and no status says for what.
func deletions(in objects) []source.Problem {
	var out []source.Problem
	for _, o := range in.Objects(object.GatewayClass) {
		class, is := o.(*gatewayv1.GatewayClass)
		if !is || class.DeletionTimestamp == nil || class.Spec.ControllerName != controllerName {
			continue
		}
		var users []string
		for _, g := range in.Objects(object.Gateway) {
			if gw, is := g.(*gatewayv1.Gateway); is && string(gw.Spec.GatewayClassName) == class.Name {
				users = append(users, gw.Namespace+"/"+gw.Name)
			}
		}
		waits := "it will be gone in a moment"
		if n := len(users); n > 0 {
			waits = fmt.Sprintf("it stays until none of its %d Gateways is there, as %s; they are served as before", n, users[0])
		}
		out = append(out, source.Problem{
			Severity: source.Warning, Object: string(object.GatewayClass) + "/" + class.Name, Since: class.DeletionTimestamp.Time, Message: "is being deleted: " + waits,
		})
	}
	return out
}

// objects is what a pipeline was handed.
type objects interface {
	Objects(kind object.Kind) []object.Object
}
