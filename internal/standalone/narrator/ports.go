package narrator

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"aether.io/aether/internal/inspect"
)

// boundPorts are the ports that connected proxies have bound, sorted. Without a proxy that
// says so they are not known.
func boundPorts(ctx context.Context, controller *inspect.Client) (ports []uint32, known bool) {
	var list []struct {
		Connected  bool
		BoundPorts []uint32
	}
	if controller.Get(ctx, inspect.ProxiesPath, &list) != nil {
		return nil, false
	}
	for _, p := range list {
		known = known || p.Connected
		ports = append(ports, p.BoundPorts...)
	}
	slices.Sort(ports)
	return slices.Compact(ports), known
}

// tellPorts tells how ports differ from those that were told. The caller holds mu.
func (n *Narrator) tellPorts(at time.Time, ports []uint32) {
	without := func(list, other []uint32) []uint32 {
		return slices.DeleteFunc(slices.Clone(list), func(p uint32) bool { return slices.Contains(other, p) })
	}
	fresh, gone := without(ports, n.ports), without(n.ports, ports)
	n.ports = ports
	say := func(text string) { n.print(line{At: at, Kind: "served", Message: text}) }
	if len(gone) > 0 {
		say("no longer listening on " + n.addresses(gone))
	}
	if len(fresh) > 0 {
		say("listening on " + n.addresses(fresh))
	}
	if len(gone) > 0 && len(ports) == 0 {
		say(noListener)
	}
}

// noListener is told when no port is bound.
const noListener = "! no listener is bound: no traffic is served"

// addresses is where ports of ours are reached.
func (n *Narrator) addresses(ports []uint32) string {
	var where []string
	for _, p := range ports {
		where = append(where, net.JoinHostPort(n.c.Bind, strconv.FormatUint(uint64(p), 10)))
	}
	return strings.Join(where, ", ")
}
