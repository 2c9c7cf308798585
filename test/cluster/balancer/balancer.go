// Package balancer gives Services of type LoadBalancer their addresses, as a cloud would.
// The addresses are of a pool that is routed to a node; each node's kube-proxy does the
// rest. Services of another load-balancer class are somebody else's.
package balancer

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// settle is how long the balancer waits before it tries again.
const settle = 200 * time.Millisecond

// Balancer writes addresses into the statuses of Services.
type Balancer struct {
	client kubernetes.Interface
	pool   netip.Prefix
	log    *slog.Logger
}

// New makes a balancer that gives out the addresses of the pool but its first.
func New(config *rest.Config, pool netip.Prefix, log *slog.Logger) (*Balancer, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &Balancer{client: client, pool: pool, log: log}, nil
}

// Run works until ctx is done. It needs no memory: all that it knows is in the statuses.
func (b *Balancer) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := b.pass(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("addresses not given; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(settle):
		}
	}
	return nil
}

// pass gives what is missing and waits for the next change.
func (b *Balancer) pass(ctx context.Context) error {
	services := b.client.CoreV1().Services(metav1.NamespaceAll)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range assign(list.Items, b.pool) {
		_, err := b.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, &s, metav1.UpdateOptions{})
		if err != nil {
			return err // what others changed meanwhile comes with the next list
		}
		b.log.Info("address given", "service", s.Namespace+"/"+s.Name, "ingress", addresses(s))
	}
	changes, err := services.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer changes.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case change, ok := <-changes.ResultChan():
			if s, is := change.Object.(*corev1.Service); !ok || !is || matters(change.Type, *s) {
				return nil
			}
		}
	}
}

// matters reports whether a change of the Service may leave one without its address. That
// of our own status does not.
func matters(kind watch.EventType, s corev1.Service) bool {
	have := addresses(s)
	return kind == watch.Deleted || ours(s) != (len(have) > 0) || len(have) > 0 && wantsOther(s, have[0])
}

// ours reports whether the Service gets an address from us.
func ours(s corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil
}

// assign returns, with their new statuses, the Services whose status is not what it should
// be. A Service keeps what it has, gets what it asks for if that is free, or else the lowest
// free address; if there is none, it waits. Of two with the same address the older keeps it.
func assign(services []corev1.Service, pool netip.Prefix) []corev1.Service {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b corev1.Service) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	taken := map[netip.Addr]bool{pool.Masked().Addr(): true}
	var without, changed []corev1.Service
	for _, s := range services {
		have := addresses(s)
		switch {
		case !ours(s) && len(have) == 0:
		case !ours(s):
			if s.Spec.LoadBalancerClass == nil {
				s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
				changed = append(changed, s)
			}
		case len(have) == 1 && pool.Contains(have[0]) && !taken[have[0]] && !wantsOther(s, have[0]):
			taken[have[0]] = true
		default:
			without = append(without, s)
		}
	}
	for _, s := range without {
		addr := choose(s, pool, taken)
		if !addr.IsValid() {
			continue
		}
		taken[addr] = true
		mode := corev1.LoadBalancerIPModeVIP
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: addr.String(), IPMode: &mode}}
		changed = append(changed, s)
	}
	return changed
}

// asked is the address that a Service asks for, if any.
func asked(s corev1.Service) netip.Addr {
	addr, _ := netip.ParseAddr(s.Spec.LoadBalancerIP) // deprecated, and what static addresses are asked with
	return addr
}

func wantsOther(s corev1.Service, have netip.Addr) bool {
	want := asked(s)
	return want.IsValid() && want != have
}

// choose returns an address that is not taken, or none.
func choose(s corev1.Service, pool netip.Prefix, taken map[netip.Addr]bool) netip.Addr {
	if want := asked(s); want.IsValid() {
		if pool.Contains(want) && !taken[want] {
			return want
		}
		return netip.Addr{}
	}
	for a := pool.Masked().Addr(); pool.Contains(a); a = a.Next() {
		if !taken[a] {
			return a
		}
	}
	return netip.Addr{}
}

func addresses(s corev1.Service) (out []netip.Addr) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		addr, _ := netip.ParseAddr(i.IP) // invalid is none of the pool
		out = append(out, addr)
	}
	return out
}
