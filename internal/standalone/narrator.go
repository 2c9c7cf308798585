package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
)

// narrator tells a person, or a program, what happens: what the processes' journals
// say, and when the instance is ready.
type narrator struct {
	c     Config
	began time.Time

	mu    sync.Mutex // lines do not mix
	ready bool       // changes are told only from then on: before, they are the start
}

func newNarrator(c Config) *narrator { return &narrator{c: c, began: time.Now()} }

// line is one line of JSON output.
type line struct {
	At      time.Time       `json:"at"`
	Process string          `json:"process,omitempty"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// follow tells the events of one process, over its restarts, until ctx is done.
func (n *narrator) follow(ctx context.Context, process, socket string) error {
	client := inspect.NewClient(socket)
	defer client.Close()
	var since uint64
	lastPID := ""
	// Exits: ctx is done.
	for {
		pid, _ := os.ReadFile(n.c.State.PIDFile(process)) // absent while it restarts
		if string(pid) != lastPID {
			lastPID, since = string(pid), 0
		}
		_ = client.Follow(ctx, since, func(e inspect.Event) { // it ends with the process, which is told by the supervisor's log
			since = e.Seq
			n.tell(process, e)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (n *narrator) tell(process string, e inspect.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if journal.Kind(e.Kind) == journal.Change && !n.ready {
		return
	}
	n.print(line{At: e.At, Process: process, Kind: e.Kind, Message: e.Message, Detail: e.Detail})
}

// print writes one line. The caller holds mu.
func (n *narrator) print(l line) {
	if n.c.JSON {
		data, err := json.Marshal(l)
		if err != nil {
			return
		}
		fmt.Fprintf(n.c.Out, "%s\n", data)
		return
	}
	if n.ready {
		fmt.Fprintf(n.c.Out, "%s  %s\n", l.At.Local().Format("15:04:05.000"), l.Message)
		return
	}
	fmt.Fprintf(n.c.Out, "%7.3fs  %s\n", l.At.Sub(n.began).Seconds(), l.Message)
}

// awaitReady waits until the proxy is ready and Gateways have been looked at, says so,
// and then waits for ctx.
func (n *narrator) awaitReady(ctx context.Context) error {
	proxy, controller := inspect.NewClient(n.c.State.ProxySocket()), inspect.NewClient(n.c.State.ControllerSocket())
	defer proxy.Close()
	defer controller.Close()
	if err := poll(ctx, func() bool { return isReady(ctx, proxy) }); err != nil {
		return err
	}
	gateways, err := settledGateways(ctx, controller)
	if err != nil {
		return err
	}
	n.mu.Lock()
	now := time.Now()
	for _, g := range gateways {
		n.print(line{At: now, Process: "controller", Kind: "gateway", Message: g.String(), Detail: g.raw})
	}
	if n.c.JSON {
		n.print(line{At: now, Kind: "ready", Message: "ready"})
	} else {
		fmt.Fprintln(n.c.Out, "ready")
	}
	n.ready = true
	n.mu.Unlock()
	if err := os.WriteFile(n.c.State.Ready(), []byte(now.UTC().Format(time.RFC3339Nano)+"\n"), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// settledGateways returns the Gateways as soon as none of them is pending any more, or
// as they are after a while: one that cannot be programmed must not hold up the rest.
func settledGateways(ctx context.Context, controller *inspect.Client) ([]Gateway, error) {
	bounded, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var gateways []Gateway
	err := poll(bounded, func() bool {
		var got inspect.Statuses
		if controller.Get(bounded, inspect.StatusPath, &got) != nil {
			return false
		}
		gateways = Gateways(got.Documents)
		return got.Settled && !slices.ContainsFunc(gateways, Gateway.pending)
	})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return gateways, nil
}

// isReady asks the proxy as a kubelet would.
func isReady(ctx context.Context, proxy *inspect.Client) bool {
	var state struct {
		State string `json:"state"`
	}
	return proxy.Get(ctx, inspect.ReadyPath, &state) == nil && (state.State == "Ready" || state.State == "Degraded")
}

// poll calls ok until it is true or ctx is done.
func poll(ctx context.Context, ok func() bool) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
