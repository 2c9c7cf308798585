package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/inspect"
)

// mostTold bounds the objects whose trouble is told at once; the rest is counted.
const mostTold = 10

// troubles compares what is wrong with objects with what was told of it.
type troubles struct {
	told    map[string]string // by object
	objects map[string]bool   // that exist, of the kinds that get a status only if they are ours
}

func newTroubles() *troubles { return &troubles{told: map[string]string{}, objects: map[string]bool{}} }

func (t *troubles) forgetObjects() { t.objects = map[string]bool{} }

// changed notes which objects there are.
func (t *troubles) changed(c touched) {
	for _, o := range c.there {
		if kind, _, _ := strings.Cut(o, "/"); kind == "Gateway" || strings.HasSuffix(kind, "Route") {
			t.objects[o] = true
		}
	}
	for _, o := range c.gone {
		delete(t.objects, o)
	}
}

// verdict is news of one object.
type verdict struct {
	object string
	text   string
	bad    bool
	detail json.RawMessage
}

// news is whose trouble differs from what was told, sorted by object. What it returns
// counts as told. That an object has no status says something only once all is settled.
func (t *troubles) news(docs []inspect.StatusDocument, settled bool) []verdict {
	now, detail := map[string]string{}, map[string]json.RawMessage{}
	seen := map[string]bool{}
	for _, d := range docs {
		name := ObjectName(d)
		seen[name] = true
		if list := Trouble(d); len(list) > 0 {
			now[name], detail[name] = strings.Join(list, "; "), d.Status
		}
	}
	for o := range t.objects {
		switch {
		case seen[o]:
		case !settled:
			if t.told[o] != "" {
				now[o] = t.told[o]
			}
		case strings.HasPrefix(o, "Gateway/"):
			now[o] = "has no effect: its gatewayClassName names no GatewayClass that is ours"
		default:
			now[o] = "has no effect: none of its parentRefs names a Gateway that is served"
		}
	}
	var out []verdict
	for _, o := range slices.Sorted(maps.Keys(now)) {
		if now[o] != t.told[o] {
			out = append(out, verdict{object: o, text: now[o], bad: true, detail: detail[o]})
		}
	}
	for _, o := range slices.Sorted(maps.Keys(t.told)) {
		if now[o] == "" && seen[o] {
			out = append(out, verdict{object: o, text: "all is well again"})
		}
	}
	t.told = now
	return out
}

// lookAtStatuses asks watch to look. It does not block.
func (n *narrator) lookAtStatuses() {
	select {
	case n.look <- struct{}{}:
	default: // it will
	}
}

// watch tells whose status turns bad, or good again, whenever something has changed, until
// ctx is done. It looks again a little later: what Envoy refuses is known only then.
func (n *narrator) watch(ctx context.Context, controller *inspect.Client) error {
	again := time.NewTimer(time.Hour)
	defer again.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.look:
			again.Reset(time.Second)
		case <-again.C:
		}
		statuses := settledStatuses(ctx, controller)
		if statuses.given && ctx.Err() == nil {
			n.mu.Lock()
			n.tellTroubles(time.Now(), statuses)
			n.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rest(statuses.took)):
		}
	}
}

// tellTroubles tells what is new in statuses. The caller holds mu.
func (n *narrator) tellTroubles(at time.Time, statuses answer) {
	news := n.troubles.news(statuses.docs, statuses.settled)
	for i, v := range news {
		if i == mostTold && !n.c.JSON {
			n.print(line{At: at, Kind: "status", Message: fmt.Sprintf("! %s more; aetherctl status --dir %s shows all", plural(len(news)-i, "object"), n.c.Dir)})
			return
		}
		mark := ""
		if v.bad {
			mark = "! "
		}
		n.print(line{At: at, Process: "controller", Kind: "status", Message: mark + v.object + ": " + v.text, Detail: v.detail})
	}
}
