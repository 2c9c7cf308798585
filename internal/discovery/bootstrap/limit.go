package bootstrap

import (
	"container/list"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits bound what callers may cost. Zero fields have the defaults.
type Limits struct {
	SourceRate  rate.Limit    // requests a second of one source; default 5
	SourceBurst int           // default 20
	GlobalRate  rate.Limit    // requests a second of all; default 100
	GlobalBurst int           // default 200
	Sources     int           // sources that are remembered, the least recent forgotten; default 4096
	Handshake   time.Duration // from accept to the end of the handshake; default 10s
	RPC         time.Duration // for one request, once it has arrived; default 10s
	Connection  time.Duration // age at which a connection is told to end; it is cut after RPC more; default 30s
}

func (l Limits) withDefaults() Limits {
	orRate := func(v *rate.Limit, d rate.Limit) {
		if *v == 0 {
			*v = d
		}
	}
	orInt := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	orTime := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	orRate(&l.SourceRate, 5)
	orInt(&l.SourceBurst, 20)
	orRate(&l.GlobalRate, 100)
	orInt(&l.GlobalBurst, 200)
	orInt(&l.Sources, 4096)
	orTime(&l.Handshake, 10*time.Second)
	orTime(&l.RPC, 10*time.Second)
	orTime(&l.Connection, 30*time.Second)
	return l
}

// limiter holds one bucket for all and one for each source.
type limiter struct {
	limits Limits
	global *rate.Limiter

	mu       sync.Mutex // guards what follows
	recent   *list.List // of *bucket, the most recently used first; at most limits.Sources
	bySource map[string]*list.Element
}

type bucket struct {
	source string
	*rate.Limiter
}

func newLimiter(l Limits) *limiter {
	return &limiter{
		limits: l, global: rate.NewLimiter(l.GlobalRate, l.GlobalBurst),
		recent: list.New(), bySource: map[string]*list.Element{},
	}
}

// wait takes one request from both buckets and returns 0, or takes none and returns how
// long the source is to wait. The source's own is asked first, so that one source
// cannot drain what is for all.
func (l *limiter) wait(source string, now time.Time) time.Duration {
	own := l.bucket(source).ReserveN(now, 1)
	if d := own.DelayFrom(now); d > 0 {
		own.CancelAt(now)
		return d
	}
	all := l.global.ReserveN(now, 1)
	if d := all.DelayFrom(now); d > 0 {
		all.CancelAt(now)
		own.CancelAt(now)
		return d
	}
	return 0
}

// waitAlone takes one request from the source's own bucket and returns 0, or takes none and
// returns how long the source is to wait. It is for sources of which there are few.
func (l *limiter) waitAlone(source string, now time.Time) time.Duration {
	own := l.bucket(source).ReserveN(now, 1)
	d := own.DelayFrom(now)
	if d > 0 {
		own.CancelAt(now)
	}
	return d
}

func (l *limiter) bucket(source string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.bySource[source]; e != nil {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).Limiter
	}
	if l.recent.Len() >= l.limits.Sources {
		oldest := l.recent.Back()
		delete(l.bySource, l.recent.Remove(oldest).(*bucket).source)
	}
	b := &bucket{source: source, Limiter: rate.NewLimiter(l.limits.SourceRate, l.limits.SourceBurst)}
	l.bySource[source] = l.recent.PushFront(b)
	return b.Limiter
}

// sourceOf is what counts as one source: an IPv4 address, or an IPv6 network of 64
// bits, of which a single host may use all addresses.
func sourceOf(addr net.Addr) string {
	if addr == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	p, _ := ip.Prefix(64) // 64 is never too long for IPv6
	return p.String()
}
