package rig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Usage is what the controller has used so far, and what it has sent.
type Usage struct {
	CPU  time.Duration
	RSS  int64   // bytes, now
	Peak int64   // bytes, at most
	Sent float64 // bytes of snapshots, to all proxies

	Snapshots float64 // to all proxies
}

// Usage looks at the controller.
func (r *Rig) Usage(ctx context.Context) (Usage, error) {
	proc := fmt.Sprintf("/proc/%d/", r.controller.pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return Usage{}, err
	}
	// After the name, which may have anything in it, come fields from the third on.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("%sstat has %d fields", proc, len(fields))
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	rss, err3 := statusField(proc, "VmRSS:")
	peak, err4 := statusField(proc, "VmHWM:")
	sent, err5 := r.metric(ctx, "coxswain_discovery_sent_bytes_total")
	snapshots, err6 := r.metric(ctx, "coxswain_discovery_snapshots_sent_total")
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go runs on
	return Usage{CPU: time.Duration(user+system) * tick, RSS: rss, Peak: peak, Sent: sent, Snapshots: snapshots}, errors.Join(err1, err2, err3, err4, err5, err6)
}

// StatusWrites is how many statuses the controller has tried to write.
func (r *Rig) StatusWrites(ctx context.Context) (float64, error) {
	return r.metric(ctx, "aether_status_writes_total")
}

func statusField(proc, name string) (bytes int64, err error) {
	text, err := os.ReadFile(proc + "status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%sstatus has no %s", proc, name)
}

// metric is the sum of a counter or a gauge of the controller's.
func (r *Rig) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.controller.metrics+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	c := &http.Client{Timeout: 10 * time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum, nil
}
