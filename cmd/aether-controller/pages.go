package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/source"
)

// handler answers questions about this controller.
func (c *controller) handler() http.Handler {
	return inspect.Handler(c.log, c.moments, map[string]inspect.Page{
		inspect.ProxiesPath:   func(*http.Request) (any, error) { return c.world.Proxies(), nil },
		inspect.ResourcesPath: c.resources,
		inspect.IdentityPath:  func(*http.Request) (any, error) { return c.identity(), nil },
		inspect.StatusPath:    func(*http.Request) (any, error) { return c.documents() },
		inspect.ProblemsPath:  func(*http.Request) (any, error) { return c.problems.get(), nil },
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
	for _, d := range c.statuses.Documents() {
		text, err := json.Marshal(d.Status)
		if err != nil {
			return out, fmt.Errorf("encode status of %s: %w", d.Key, err)
		}
		out.Documents = append(out.Documents, inspect.StatusDocument{Kind: string(d.Key.Kind), Namespace: d.Key.Namespace, Name: d.Key.Name, Generation: d.Generation, Status: text})
	}
	return out, nil
}

// problems is what is wrong with the source at present. New ones are told once.
type problems struct {
	moments *journal.Journal
	log     *slog.Logger

	mu   sync.Mutex
	list []source.Problem
}

func (p *problems) set(list []source.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := map[string]bool{}
	for _, old := range p.list {
		known[old.String()] = true
	}
	for _, now := range list {
		if text := now.String(); !known[text] {
			p.moments.Add(time.Now(), journal.Problem, text, now)
			p.log.Warn("problem with a manifest", logkey.File, now.File, logkey.Object, now.Object, logkey.Path, now.Path, logkey.Reason, now.Message)
		}
	}
	p.list = list
}

func (p *problems) get() []source.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]source.Problem{}, p.list...)
}
