package standalone

import (
	"context"
	"time"

	"aether.io/aether/internal/envoyadmin"
	"aether.io/aether/internal/logkey"
)

// drain asks Envoy to wind down and waits until no request is active, for at most the
// instance's drain time. An Envoy that does not answer has nothing to drain.
func (in *Instance) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, in.c.Drain)
	defer cancel()
	admin := envoyadmin.New(in.c.State.AdminSocket())
	defer admin.Close()
	if err := admin.DrainListeners(ctx); err != nil {
		in.c.Log.Debug("drain envoy", logkey.Error, err)
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	// Exits: nothing is active, Envoy does not answer, or the drain time is over.
	for {
		active, err := admin.Requests(ctx)
		if err != nil || active == 0 {
			return
		}
		select {
		case <-ctx.Done():
			in.c.Log.Warn("requests were still active when the drain time was over", logkey.Count, active)
			return
		case <-tick.C:
		}
	}
}
