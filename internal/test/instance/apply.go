package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/inspect"
)

// ApplyTimeout bounds Apply. The controller itself gives up on proxies sooner.
const ApplyTimeout = 30 * time.Second

// Apply writes a manifest and waits until the controller reports what has become of the
// change: that it is live in every proxy, or why not. A text that changes no object is
// never reported.
func (in *Instance) Apply(ctx context.Context, name, text string) (changelog.Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, ApplyTimeout)
	defer cancel()
	before := time.Now() // what comes of the file beside it may be noticed too, and first
	if _, err := in.Write(name, text); err != nil {
		return changelog.Entry{}, err
	}
	c := inspect.NewClient(in.State.ControllerSocket())
	defer c.Close()
	var found *changelog.Entry
	err := c.Follow(ctx, 0, func(e inspect.Event) {
		var entry changelog.Entry
		if found == nil && e.Kind == "change" && json.Unmarshal(e.Detail, &entry) == nil &&
			!entry.At.Before(before) && slices.Contains(entry.Cause, name) {
			found = &entry
			cancel()
		}
	})
	if found == nil {
		return changelog.Entry{}, fmt.Errorf("no report of the change of %s within %s: %w", name, ApplyTimeout, err)
	}
	return *found, nil
}
