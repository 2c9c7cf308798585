package standalone

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/inspect"
)

// stillStarting is how long a start may take before it is told what it waits for, and how
// often that is told again.
const stillStarting = 5 * time.Second

// awaitReady waits until the proxy is ready and Gateways have been looked at, says so,
// and then watches statuses until ctx is done.
func (n *narrator) awaitReady(ctx context.Context) error {
	proxy, controller := inspect.NewClient(n.c.State.ProxySocket()), inspect.NewClient(n.c.State.ControllerSocket())
	defer proxy.Close()
	defer controller.Close()
	if err := n.awaitProxy(ctx, proxy); err != nil {
		return err
	}
	statuses := settledStatuses(ctx, controller, patience)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	now := time.Now()
	ports, known := boundPorts(ctx, controller)
	n.mu.Lock()
	n.tellServed(now, statuses, ports, known)
	if n.c.JSON {
		n.print(line{At: now, Kind: "ready", Message: "ready"})
	}
	n.flush(time.Time{})
	if !n.c.JSON {
		fmt.Fprintln(n.c.Out, "ready")
	}
	n.ready = true
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		n.keep(ctx, n.c.State.Ready(), []byte(now.UTC().Format(time.RFC3339Nano)+"\n"))
	}()
	defer func() { cancel(); <-marked }()
	return n.watch(ctx, controller)
}

// The back-off of a file that cannot be written.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// keep writes a file of the supervisor's own. A disk that is full is no reason to stop
// serving: it is told, and tried again until ctx is done.
func (n *narrator) keep(ctx context.Context, path string, text []byte) {
	// Exits: it is written, or ctx is done.
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := atomicfile.Write(path, text, 0o600)
		if err == nil && wait > firstRetry {
			n.say("state", "%s is written now", path)
		}
		if err == nil {
			return
		}
		if wait == firstRetry {
			n.say("state", "! %v; it is tried again", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// awaitProxy waits until the proxy is configured. A wait that is long is explained.
func (n *narrator) awaitProxy(ctx context.Context, proxy *inspect.Client) error {
	told := time.Now()
	return poll(ctx, func() bool {
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
		n.say("starting", "still starting: %s (logs in %s)", why, filepath.Dir(n.c.State.Log("proxy")))
		return false
	})
}

// tellServed says what is served, and what is not. The caller holds mu.
func (n *narrator) tellServed(at time.Time, statuses answer, ports []uint32, known bool) {
	say := func(text string) { n.print(line{At: at, Kind: "served", Message: text}) }
	gateways := Gateways(statuses.docs)
	for _, g := range gateways {
		n.print(line{At: at, Process: "controller", Kind: "gateway", Message: g.String(), Detail: g.raw})
	}
	n.tellTroubles(at, statuses)
	if slices.ContainsFunc(gateways, Gateway.portUnavailable) {
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
func (n *narrator) otherOffset() string {
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
	_ = poll(ctx, func() bool { // a wait that ended early has what there is
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
	return a.given && a.settled && !slices.ContainsFunc(Gateways(a.docs), Gateway.pending)
}

// poll calls ok until it is true or ctx is done. What takes long is called less often, so
// that asking does not disturb who is asked.
func poll(ctx context.Context, ok func() bool) error {
	const often = 10 * time.Millisecond
	// Exits: ok, or ctx is done.
	for {
		began := time.Now()
		if ok() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(often, rest(time.Since(began)))):
		}
	}
}

// rest is how long to wait after a question that took so long.
func rest(took time.Duration) time.Duration { return 10 * took }
