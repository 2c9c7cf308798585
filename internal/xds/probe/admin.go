// Package probe looks at what an Envoy on the same machine really does: which of what
// it accepted it cannot use yet and how long it drains, by its admin socket, and which ports are listened on,
// by the kernel's tables. It changes nothing and remembers nothing.
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
)

const (
	adminDeadline = 2 * time.Second
	adminMaxBody  = 64 << 20 // bytes
)

// Admin returns a client of the admin socket at that path.
func Admin(socket string) *http.Client {
	return &http.Client{Timeout: adminDeadline, Transport: &http.Transport{
		MaxIdleConns: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
}

// Warming asks Envoy which clusters and listeners it has accepted and cannot use yet:
// first how many, which is cheap, and their names only if there are any.
func Warming(ctx context.Context, admin *http.Client) ([]resource.Name, error) {
	var stats struct {
		Stats []struct {
			Name  string `json:"name"`
			Value uint64 `json:"value"`
		} `json:"stats"`
	}
	filter := `^(cluster_manager\.warming_clusters|listener_manager\.total_listeners_warming)$`
	if err := Ask(ctx, admin, "/stats?format=json&filter="+url.QueryEscape(filter), &stats); err != nil {
		return nil, err
	}
	var out []resource.Name
	for _, st := range stats.Stats {
		if st.Value == 0 {
			continue
		}
		typeURL, list, read := envoy.ClusterType, "dynamic_warming_clusters", warmingClusters
		if st.Name == "listener_manager.total_listeners_warming" {
			typeURL, list, read = envoy.ListenerType, "dynamic_listeners", warmingListeners
		}
		var dump struct {
			Configs []json.RawMessage `json:"configs"`
		}
		if err := Ask(ctx, admin, "/config_dump?resource="+list, &dump); err != nil {
			return nil, err
		}
		for _, c := range dump.Configs {
			if n := read(c); n != "" {
				out = append(out, resource.Name{TypeURL: typeURL, Name: n})
			}
		}
	}
	slices.SortFunc(out, resource.Name.Compare)
	return slices.Compact(out), nil
}

// DrainTime asks Envoy how long it lets connections of a replaced filter chain live.
func DrainTime(ctx context.Context, admin *http.Client) (time.Duration, error) {
	var info struct {
		Options struct {
			DrainTime string `json:"drain_time"`
		} `json:"command_line_options"`
	}
	if err := Ask(ctx, admin, "/server_info", &info); err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(info.Options.DrainTime)
	if err != nil {
		return 0, fmt.Errorf("ask envoy's admin: drain time: %w", err)
	}
	return d, nil
}

// warmingClusters reads the name from an entry of dynamic_warming_clusters.
func warmingClusters(entry json.RawMessage) string {
	var c struct {
		Cluster struct {
			Name string `json:"name"`
		} `json:"cluster"`
	}
	if json.Unmarshal(entry, &c) != nil {
		return ""
	}
	return c.Cluster.Name
}

// warmingListeners reads the name from an entry of dynamic_listeners if it is warming.
func warmingListeners(entry json.RawMessage) string {
	var l struct {
		Name    string           `json:"name"`
		Warming *json.RawMessage `json:"warming_state"`
	}
	if json.Unmarshal(entry, &l) != nil || l.Warming == nil {
		return ""
	}
	return l.Name
}

// Ask reads the JSON that the admin socket answers to a GET of path.
func Ask(ctx context.Context, admin *http.Client, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin"+path, nil)
	if err != nil {
		return fmt.Errorf("ask envoy's admin: %w", err)
	}
	res, err := admin.Do(req)
	if err != nil {
		return fmt.Errorf("ask envoy's admin: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("ask envoy's admin: %s: %s", path, res.Status)
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, adminMaxBody)).Decode(into); err != nil {
		return fmt.Errorf("ask envoy's admin: %s: %w", path, err)
	}
	// To the end, so that the connection is used again.
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<10))
	if err != nil {
		return fmt.Errorf("ask envoy's admin: %s: %w", path, err)
	}
	return nil
}
