package standalone

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/standalone/narrator"
)

// lookAtState is how often it is looked whether the state directory is still there.
const lookAtState = time.Second

// watchState makes the state directory anew if somebody removes it, until ctx is done. What
// runs goes on: the controller writes again what it knows, and the proxy is started again,
// for its sockets and its last good; Envoy is left alone, and with it all traffic.
func (in *Instance) watchState(ctx context.Context, n *narrator.Narrator, r *running, logs *logFiles, settings []byte) error {
	made, err := in.c.State.Made()
	if err != nil { // removed already: no directory is the same as none
		in.c.Log.Debug("look at the state directory", logkey.Error, err)
	}
	tick := time.NewTicker(lookAtState)
	defer tick.Stop()
	told, releaseAll := "", func() {}
	defer func() { releaseAll() }()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if now, err := in.c.State.Made(); err == nil && now.Same(made) {
			continue
		}
		release, err := in.remake(ctx, n, r, logs, settings)
		if err != nil {
			if text := err.Error(); text != told {
				told = text
				n.Say("state", "! the state directory %s was removed and cannot be made again, will retry: %v", in.c.State.Root(), err)
			}
			continue
		}
		before := releaseAll
		releaseAll = func() { release(); before() }
		told = ""
		if made, err = in.c.State.Made(); err != nil {
			continue // removed again
		}
	}
}

// remake makes the state directory with what the supervisor keeps in it.
func (in *Instance) remake(ctx context.Context, n *narrator.Narrator, r *running, logs *logFiles, settings []byte) (release func(), err error) {
	release, err = in.c.State.Open()
	if err != nil {
		return nil, err
	}
	if err = in.introduce(ctx, n); err == nil {
		err = logs.reopen(in.c.State)
	}
	if err != nil {
		release()
		return nil, err
	}
	n.Say("state", "! the state directory %s was removed; it is made again. The next restart begins with a new CA, and objects may be as old as now. Envoy goes on, without its log and its admin socket until it is started again", in.c.State.Root())
	keep(ctx, n, in.c.State.Settings(), settings)
	ready, pids := r.now()
	if ready {
		keep(ctx, n, in.c.State.Ready(), []byte(time.Now().UTC().Format(time.RFC3339Nano)+"\n"))
	}
	for name, pid := range pids {
		if err := atomicfile.Write(in.c.State.PIDFile(name), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			n.Say("state", "! %v", err)
		}
	}
	if p, err := os.FindProcess(pids["proxy"]); err == nil && pids["proxy"] > 0 {
		n.Expect("proxy", pids["proxy"])
		_ = p.Signal(syscall.SIGTERM) // it may be starting anyway
	}
	return release, nil
}

// The back-off of a file that cannot be written.
const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// keep writes a file of the supervisor's own. A disk that is full is no reason to stop
// serving: it is told, and tried again until ctx is done.
func keep(ctx context.Context, n *narrator.Narrator, path string, text []byte) {
	// Exits: it is written, or ctx is done.
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := atomicfile.Write(path, text, 0o600)
		if err == nil && wait > firstRetry {
			n.Say("state", "%s is written now", path)
		}
		if err == nil {
			return
		}
		if wait == firstRetry {
			n.Say("state", "! %v; it is tried again", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}
