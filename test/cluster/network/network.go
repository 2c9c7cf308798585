// Package network lays the test cluster's network on this machine: a bridge, and a cable
// from it into the network namespace of each node. Nothing else of the machine's own
// network is touched: no address, rule, route or setting that is not the bridge's. What
// is behind the cables goes with the namespaces; Remove takes away the rest.
//
// The addresses are from 198.18.0.0/15, which is for tests of networks (RFC 2544) and so
// is nobody's.
package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// bridge is the name of the bridge. The cables' have a number for the nought.
const bridge = "aether-test0"

// The ranges of addresses, each apart from the others.
var (
	Pods     = netip.MustParsePrefix("198.18.0.0/16")
	Nodes    = netip.MustParsePrefix("198.19.0.0/24")
	Pool     = netip.MustParsePrefix("198.19.64.0/24")  // of Services of type LoadBalancer
	Services = netip.MustParsePrefix("198.19.128.0/17") // of all Services
	Host     = netip.MustParseAddr("198.19.0.1")        // this machine, as the nodes see it
	DNS      = netip.MustParseAddr("198.19.128.10")     // the cluster's name server
)

// MaxNodes is how many nodes have addresses.
const MaxNodes = 9

// ErrInUse says that the bridge belongs to another.
var ErrInUse = errors.New("another cluster has the network")

// Node is a node by its number, from 1.
type Node int

// Name is the node's name.
func (n Node) Name() string { return "node-" + strconv.Itoa(int(n)) }

// Address is the node's address.
func (n Node) Address() netip.Addr {
	a := Nodes.Addr().As4()
	a[3] = byte(10 + n)
	return netip.AddrFrom4(a)
}

// Pods is the range of the node's pods.
func (n Node) Pods() netip.Prefix {
	a := Pods.Addr().As4()
	a[2] = byte(n)
	return netip.PrefixFrom(netip.AddrFrom4(a), 24)
}

func (n Node) cable() string { return strings.TrimSuffix(bridge, "0") + strconv.Itoa(int(n)) }

// links are the aliases of the network interfaces, by name. They are asked of the kernel and
// not read from /sys, which may show those of another network namespace.
func links(ctx context.Context) (map[string]string, error) {
	out, err := exec.CommandContext(ctx, "ip", "-json", "link").Output()
	if err != nil {
		return nil, fmt.Errorf("ip link: %w", err)
	}
	var list []struct {
		Name  string `json:"ifname"`
		Alias string `json:"ifalias"`
	}
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("ip link: %w", err)
	}
	aliases := make(map[string]string, len(list))
	for _, l := range list {
		aliases[l.Name] = l.Alias
	}
	return aliases, nil
}

// Owner is who the bridge was made for; empty: nobody, or there is none.
func Owner(ctx context.Context) (string, error) {
	there, err := links(ctx)
	return there[bridge], err
}

// Create makes the bridge for the owner, or what is missing of it. Services and the pool
// are reached through the first node: its kube-proxy knows them as well as any.
func Create(ctx context.Context, owner string) error {
	there, err := links(ctx)
	if err != nil {
		return err
	}
	now, exists := there[bridge]
	if now != owner && now != "" {
		return fmt.Errorf("%w: that of %s", ErrInUse, now)
	}
	if !exists {
		if err := run(ctx, "ip", "link", "add", bridge, "type", "bridge"); err != nil {
			return err
		}
	}
	return ip(ctx, [][]string{
		{"link", "set", bridge, "alias", owner},
		{"address", "replace", netip.PrefixFrom(Host, Nodes.Bits()).String(), "dev", bridge},
		{"link", "set", bridge, "up"},
		{"route", "replace", Services.String(), "via", Node(1).Address().String(), "dev", bridge},
		{"route", "replace", Pool.String(), "via", Node(1).Address().String(), "dev", bridge},
	})
}

// Attach connects the node, whose network namespace is that of the process. It has a route to
// the pods of every other that there may be. A node that is attached again has a new
// namespace; what is left of the old cable is taken away first.
func (n Node) Attach(ctx context.Context, pid int) error {
	_ = run(ctx, "ip", "link", "delete", n.cable()) // there may be none
	if err := ip(ctx, [][]string{
		{"link", "add", n.cable(), "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(pid)},
		{"link", "set", n.cable(), "master", bridge, "up"},
		{"route", "replace", n.Pods().String(), "via", n.Address().String(), "dev", bridge},
	}); err != nil {
		return err
	}
	inside := [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", netip.PrefixFrom(n.Address(), Nodes.Bits()).String(), "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", Host.String()},
		// Kube-proxy translates an address of the pool before it is routed. One that it does not
		// know yet is refused: a connection that went nowhere would go on going there, as
		// connections are tracked.
		{"route", "add", "unreachable", Pool.String()},
	}
	for other := Node(1); other <= MaxNodes; other++ {
		if other != n {
			inside = append(inside, []string{"route", "add", other.Pods().String(), "via", other.Address().String()})
		}
	}
	for _, args := range inside {
		if err := run(ctx, "nsenter", append([]string{"--net", "--target", strconv.Itoa(pid), "ip"}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

// Remove takes away the bridge and the cables, if they are the owner's.
func Remove(ctx context.Context, owner string) error {
	there, err := links(ctx)
	if now, exists := there[bridge]; err != nil || !exists || now != owner {
		return err
	}
	for n := Node(1); n <= MaxNodes; n++ {
		if _, exists := there[n.cable()]; exists {
			_ = run(ctx, "ip", "link", "delete", n.cable()) // it goes by itself, too, with its other end
		}
	}
	return run(ctx, "ip", "link", "delete", bridge)
}

func ip(ctx context.Context, commands [][]string) error {
	for _, args := range commands {
		if err := run(ctx, "ip", args...); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
