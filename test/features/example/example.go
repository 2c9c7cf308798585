// Package example reads the folders of examples/features: manifests that show one
// feature, and requests.yaml, which says what requests must come to. It sends nothing
// and starts nothing. Reading is strict: a field that is misspelled, a pattern that
// does not compile and an expectation that expects nothing are errors.
//
// requests.yaml is one document:
//
//	apiVersion: features.aether.io/v1   # so that Aether, which reads the folder too,
//	kind: Requests                      # knows that it is not for it
//	features: [HTTPRouteMethodMatching] # names of the Gateway API's features shown here
//
//	authorities:                        # made anew for each run
//	- name: public                      # the clients below trust these
//	  configMap: default/public-ca      # if given: holds its certificate as ca.crt
//	certificates:
//	- secret: default/shop              # the Secret of type kubernetes.io/tls to make
//	  hosts: [shop.example.com]
//	  authority: public                 # default: the first; "self": signed by itself
//	clients:                            # certificates that requests may show
//	- {name: ann, authority: staff}
//
//	backends:                           # what listens at the EndpointSlices' addresses:
//	  shop: {}                          # an echo (internal/test/echo) each, named as the
//	  dead: {absent: true}              # EndpointSlice is. Only exceptions are listed
//	  safe: {hosts: [safe.internal], authority: public}   # speaks TLS too
//
//	requests:
//	- name: only POST is taken          # a sentence
//	  send: POST http://shop.example.com/cart?x=1   # port: 8080, and 8443 for https
//	  ...
//	statuses:
//	- object: HTTPRoute/default/shop
//	  ...
//
// An expectation that is not given is the usual: status 200; every Gateway of ours
// is Accepted and Programmed, every route Accepted with ResolvedRefs, at every parent.
package example

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The file of a folder that is not a manifest, and what it calls itself.
const (
	File = "requests.yaml"
	// MadeFile has the certificates while a person runs the example by hand.
	MadeFile   = "made.yaml"
	apiVersion = "features.aether.io/v1"
	kind       = "Requests"
)

// Example is one folder.
type Example struct {
	Name      string            // the folder's
	Title     string            // the first comment line of requests.yaml
	Manifests map[string]string // text by file name
	Document
}

// Document is requests.yaml.
type Document struct {
	APIVersion   string             `json:"apiVersion"`
	Kind         string             `json:"kind"`
	Features     []string           `json:"features,omitempty"`
	Authorities  []Authority        `json:"authorities,omitempty"`
	Certificates []Certificate      `json:"certificates,omitempty"`
	Clients      []Client           `json:"clients,omitempty"`
	Backends     map[string]Backend `json:"backends,omitempty"`
	Requests     []Request          `json:"requests,omitempty"`
	Statuses     []Status           `json:"statuses,omitempty"`
}

// Authority signs certificates.
type Authority struct {
	Name      string `json:"name"`
	ConfigMap string `json:"configMap,omitempty"` // namespace/name
}

// Certificate is a Secret to make.
type Certificate struct {
	Secret    string   `json:"secret"` // namespace/name
	Hosts     []string `json:"hosts"`
	Authority string   `json:"authority,omitempty"`
}

// Client is a certificate that a request may show.
type Client struct {
	Name      string `json:"name"`
	Authority string `json:"authority"`
}

// Backend is how an echo differs from the others.
type Backend struct {
	Absent    bool     `json:"absent,omitempty"` // nothing listens there
	Hosts     []string `json:"hosts,omitempty"`  // with these in its certificate it speaks TLS
	Authority string   `json:"authority,omitempty"`
	Clients   string   `json:"clients,omitempty"` // the authority whose certificates clients must show
}

// Status is what must be said of an object. Conditions are by type, "True Accepted":
// status and reason; "absent": there must be none. At least one of the rest is given.
type Status struct {
	Object         string            `json:"object"`             // Kind/namespace/name, or Kind/name
	Parent         string            `json:"parent,omitempty"`   // of a route or policy: its name, or name/section
	Listener       string            `json:"listener,omitempty"` // of a Gateway or ListenerSet
	Conditions     map[string]string `json:"conditions,omitempty"`
	AttachedRoutes *int32            `json:"attachedRoutes,omitempty"`
	SupportedKinds []string          `json:"supportedKinds,omitempty"` // all of them
	Without        []string          `json:"without,omitempty"`        // see Request
}

// Read reads the folder.
func Read(dir string) (*Example, error) {
	e := &Example{Name: filepath.Base(dir), Manifests: map[string]string{}}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		switch name := filepath.Base(path); {
		case strings.HasPrefix(name, "."), name == MadeFile:
		case name == File:
			if err := e.parse(string(text)); err != nil {
				return nil, fmt.Errorf("%s/%s: %w", e.Name, File, err)
			}
		default:
			e.Manifests[name] = string(text)
		}
	}
	if e.Kind == "" {
		return nil, fmt.Errorf("%s has no %s", e.Name, File)
	}
	return e, nil
}

// ReadAll reads every folder in dir, sorted by name.
func ReadAll(dir string) ([]*Example, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", File))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var all []*Example
	for _, path := range files {
		e, err := Read(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (e *Example) parse(text string) error {
	first, _, _ := strings.Cut(text, "\n")
	if e.Title = strings.TrimSpace(strings.TrimPrefix(first, "#")); !strings.HasPrefix(first, "# ") || e.Title == "" {
		return fmt.Errorf("the first line must be a comment that says what the example shows")
	}
	if err := yaml.UnmarshalStrict([]byte(text), &e.Document); err != nil {
		return err
	}
	return e.check()
}

func (d *Document) check() error {
	if d.APIVersion != apiVersion || d.Kind != kind {
		return fmt.Errorf("apiVersion and kind must be %s and %s", apiVersion, kind)
	}
	if len(d.Requests)+len(d.Statuses) == 0 {
		return fmt.Errorf("there are no requests and no statuses")
	}
	if err := d.checkNames(); err != nil {
		return err
	}
	names := map[string]bool{}
	for i := range d.Requests {
		r := &d.Requests[i]
		if r.Name == "" || names[r.Name] {
			return fmt.Errorf("request %d needs a name of its own", i)
		}
		names[r.Name] = true
		if err := r.check(d); err != nil {
			return fmt.Errorf("request %q: %w", r.Name, err)
		}
	}
	for i, s := range d.Statuses {
		if err := s.check(); err != nil {
			return fmt.Errorf("status %d of %s: %w", i, s.Object, err)
		}
	}
	return nil
}

// checkNames finds names of authorities that are not there.
func (d *Document) checkNames() error {
	known := func(name string) error {
		switch {
		case len(d.Authorities) == 0:
			return fmt.Errorf("there are certificates and no authorities")
		case name != "" && name != Self && d.authority(name) == nil:
			return fmt.Errorf("no authority %q", name)
		}
		return nil
	}
	for _, c := range d.Certificates {
		if err := known(c.Authority); err != nil {
			return fmt.Errorf("certificate %s: %w", c.Secret, err)
		}
	}
	for _, c := range d.Clients {
		if err := known(c.Authority); err != nil {
			return fmt.Errorf("client %s: %w", c.Name, err)
		}
	}
	for name, b := range d.Backends {
		if len(b.Hosts) == 0 && b.Authority == "" && b.Clients == "" {
			continue
		}
		for _, authority := range []string{b.Authority, b.Clients} {
			if err := known(authority); err != nil {
				return fmt.Errorf("backend %s: %w", name, err)
			}
		}
	}
	return nil
}

func (d *Document) authority(name string) *Authority {
	for i := range d.Authorities {
		if d.Authorities[i].Name == name {
			return &d.Authorities[i]
		}
	}
	return nil
}

func (s Status) check() error {
	if n := strings.Count(s.Object, "/"); n != 1 && n != 2 {
		return fmt.Errorf("an object is Kind/namespace/name or Kind/name")
	}
	if len(s.Conditions) == 0 && s.AttachedRoutes == nil && s.SupportedKinds == nil {
		return fmt.Errorf("it expects nothing")
	}
	for kind, want := range s.Conditions {
		if want == Absent {
			continue
		}
		status, reason, ok := strings.Cut(want, " ")
		if !ok || reason == "" || status != "True" && status != "False" && status != "Unknown" {
			return fmt.Errorf("condition %s: want a status and a reason, or absent; got %q", kind, want)
		}
	}
	return nil
}

// Absent stands for a condition that must not be there.
const Absent = "absent"
