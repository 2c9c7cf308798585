package spire

import (
	"context"
	"encoding/json"
	"fmt"
)

// Entry says what a workload is, by what the agent sees of its pod.
type Entry struct {
	Namespace, ServiceAccount string
	DNSNames                  []string // in its certificate besides the SPIFFE ID
}

// Controller is the entry of a release's controller, whose certificate is that of its webhook.
func Controller(namespace, release string) Entry {
	return Entry{
		Namespace: namespace, ServiceAccount: "aether-controller",
		DNSNames: []string{release + "-controller-webhook." + namespace + ".svc"},
	}
}

// nodes is what every agent is besides itself, so that entries are for all nodes.
const nodes = "spiffe://" + TrustDomain + "/nodes"

// ID is the SPIFFE ID that workloads of the entry get.
func (e Entry) ID() string {
	return fmt.Sprintf("spiffe://%s/ns/%s/sa/%s", TrustDomain, e.Namespace, e.ServiceAccount)
}

// Register has workloads of the entry get SVIDs; another entry for the same workloads is
// changed to this one. Agents learn of it in some 5 seconds.
func (s *SPIRE) Register(ctx context.Context, e Entry) error {
	args := []string{"-parentID", nodes, "-selector", "k8s:ns:" + e.Namespace, "-selector", "k8s:sa:" + e.ServiceAccount}
	for _, name := range e.DNSNames {
		args = append(args, "-dns", name)
	}
	return s.put(ctx, e.ID(), args...)
}

// Forget has workloads of the entry get no more SVIDs.
func (s *SPIRE) Forget(ctx context.Context, e Entry) error {
	ids, err := s.entries(ctx, e.ID())
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := s.Server(ctx, "entry", "delete", "-entryID", id); err != nil {
			return err
		}
	}
	return nil
}

func (s *SPIRE) registerNodes(ctx context.Context) error {
	return s.put(ctx, nodes, "-parentID", "spiffe://"+TrustDomain+"/spire/server", "-selector", "k8s_psat:cluster:test")
}

// put makes the entry of a SPIFFE ID, or changes the one that there is.
func (s *SPIRE) put(ctx context.Context, id string, args ...string) error {
	ids, err := s.entries(ctx, id)
	if err != nil {
		return err
	}
	command := []string{"entry", "create"}
	if len(ids) > 0 {
		command = []string{"entry", "update", "-entryID", ids[0]}
	}
	_, err = s.Server(ctx, append(append(command, "-spiffeID", id), args...)...)
	return err
}

// entries is the names of the entries of a SPIFFE ID.
func (s *SPIRE) entries(ctx context.Context, id string) ([]string, error) {
	text, err := s.Server(ctx, "entry", "show", "-spiffeID", id, "-output", "json")
	if err != nil {
		return nil, err
	}
	var found struct {
		Entries []struct {
			ID string `json:"id"`
		} `json:"entries"`
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return nil, fmt.Errorf("entries of %s: %w", id, err)
	}
	ids := make([]string, len(found.Entries))
	for i, e := range found.Entries {
		ids[i] = e.ID
	}
	return ids, nil
}

// Server runs a command of the server's, in its pod, and returns what it printed.
func (s *SPIRE) Server(ctx context.Context, args ...string) (string, error) {
	return s.Cluster.Kubectl(ctx, "", append([]string{"--namespace=" + Namespace, "exec", "deployment/spire-server", "--", "/usr/local/bin/spire", "server"}, args...)...)
}
