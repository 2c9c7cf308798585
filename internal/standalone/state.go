package standalone

import (
	"context"
	"maps"
	"os"
	"strconv"
	"syscall"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/logkey"
)

// lookAtState is how often it is looked whether the state directory is still there.
const lookAtState = time.Second

// watchState makes the state directory anew if somebody removes it, until ctx is done. What
// runs goes on: the controller writes again what it knows, and the proxy is started again,
// for its sockets and its last good; Envoy is left alone, and with it all traffic.
func (in *Instance) watchState(ctx context.Context, n *narrator, logs *logFiles, settings []byte) error {
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
		release, err := in.remake(ctx, n, logs, settings)
		if err != nil {
			if text := err.Error(); text != told {
				told = text
				n.say("state", "! the state directory %s was removed and cannot be made again, will retry: %v", in.c.State.Root(), err)
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
func (in *Instance) remake(ctx context.Context, n *narrator, logs *logFiles, settings []byte) (release func(), err error) {
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
	n.say("state", "! the state directory %s was removed; it is made again. The next restart begins with a new CA, and objects may be as old as now. Envoy goes on, without its log and its admin socket until it is started again", in.c.State.Root())
	n.keep(ctx, in.c.State.Settings(), settings)
	n.mu.Lock()
	ready, pids := n.ready, maps.Clone(n.pids)
	n.mu.Unlock()
	if ready {
		n.keep(ctx, in.c.State.Ready(), []byte(time.Now().UTC().Format(time.RFC3339Nano)+"\n"))
	}
	for name, pid := range pids {
		if err := atomicfile.Write(in.c.State.PIDFile(name), []byte(strconv.Itoa(pid)+"\n"), 0o600); err != nil {
			n.say("state", "! %v", err)
		}
	}
	if p, err := os.FindProcess(pids["proxy"]); err == nil && pids["proxy"] > 0 {
		n.mu.Lock()
		n.asked["proxy"] = pids["proxy"]
		n.mu.Unlock()
		_ = p.Signal(syscall.SIGTERM) // it may be starting anyway
	}
	return release, nil
}
