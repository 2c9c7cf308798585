package narrator

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone/poll"
	"aether.io/aether/internal/standalone/view"
)

// stillStarting is how long a start may take before it is told what it waits for, and how
// often that is told again.
const stillStarting = 5 * time.Second

// AwaitReady waits until the proxy is ready and Gateways have been looked at, and says so.
// It returns when that was.
func (n *Narrator) AwaitReady(ctx context.Context) (time.Time, error) {
	proxy, controller := inspect.NewClient(n.c.State.ProxySocket()), inspect.NewClient(n.c.State.ControllerSocket())
	defer proxy.Close()
	defer controller.Close()
	if err := n.awaitProxy(ctx, proxy); err != nil {
		return time.Time{}, err
	}
	statuses := settledStatuses(ctx, controller, patience)
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	now := time.Now()
	ports, known := boundPorts(ctx, controller)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tellServed(now, statuses, ports, known)
	if n.c.JSON {
		n.print(line{At: now, Kind: "ready", Message: "ready"})
	}
	n.flush(time.Time{})
	if !n.c.JSON {
		fmt.Fprintln(n.c.Out, "ready")
	}
	n.ready = true
	return now, nil
}

// awaitProxy waits until the proxy is configured. A wait that is long is explained.
func (n *Narrator) awaitProxy(ctx context.Context, proxy *inspect.Client) error {
	told := time.Now()
	return poll.Until(ctx, func() bool {
		var s health.State
		err := proxy.Get(ctx, inspect.ReadyPath, &s)
		if err == nil && (s.State == health.Ready || s.State == health.Degraded) {
			return true
		}
		if time.Since(told) < stillStarting {
			return false
		}
		told = time.Now()
		why := "the proxy does not answer"
		if err == nil {
			why = reasonProse(s)
		}
		n.Say("starting", "still starting: %s (logs in %s)", why, filepath.Dir(n.c.State.Log("proxy")))
		return false
	})
}

// tellServed says what is served, and what is not. The caller holds mu.
func (n *Narrator) tellServed(at time.Time, statuses answer, ports []uint32, known bool) {
	say := func(text string) { n.print(line{At: at, Kind: "served", Message: text}) }
	gateways := view.Gateways(statuses.docs)
	for _, g := range gateways {
		n.print(line{At: at, Process: "controller", Kind: "gateway", Message: g.String(), Detail: g.Raw})
	}
	n.tellTroubles(at, statuses)
	if slices.ContainsFunc(gateways, view.Gateway.PortUnavailable) {
		say("! a port cannot be bound, its listener says why: free it, or move all listeners with " + n.otherOffset() + "; ports below 1024 are usually for root only")
	}
	switch {
	case !statuses.given:
		say("! the controller does not answer; what was served last is served")
	case len(gateways) == 0:
		say("! no Gateway is served: there is none in " + n.c.Dir + ", or none of a class of ours")
	case known && len(ports) == 0:
		say(noListener)
	default:
		n.tellPorts(at, ports)
	}
}

// otherOffset is the flag that would help, where the one that was given does not.
func (n *Narrator) otherOffset() string {
	if n.c.PortOffset > 0 {
		return "another --port-offset than " + strconv.Itoa(n.c.PortOffset)
	}
	return "--port-offset"
}

// answer is what the controller said of statuses.
type answer struct {
	docs    []inspect.StatusDocument
	idle    []string      // objects that have no effect, once settled
	given   bool          // it said something
	settled bool          // nothing is missing and nothing is still being worked out
	took    time.Duration // to answer once
}

// patience is how long it is waited for statuses to settle.
const patience = 3 * time.Second

// settledStatuses returns statuses as soon as all of them are known and no Gateway is
// pending any more, or as they are after a while: one that cannot be programmed must not
// hold up the rest. Without patience they are returned as they are.
func settledStatuses(ctx context.Context, controller *inspect.Client, patience time.Duration) answer {
	until := time.Now().Add(patience)
	var a answer
	_ = poll.Until(ctx, func() bool { // a wait that ended early has what there is
		began := time.Now()
		var now inspect.Statuses
		if controller.Get(ctx, inspect.StatusPath, &now) == nil {
			a = answer{docs: now.Documents, idle: now.Idle, given: true, settled: now.Settled, took: time.Since(began)}
		}
		return a.calm() || !time.Now().Before(until)
	})
	return a
}

// calm reports whether nothing is about to change by itself, as far as is known.
func (a answer) calm() bool {
	return a.given && a.settled && !slices.ContainsFunc(view.Gateways(a.docs), view.Gateway.Pending)
}
