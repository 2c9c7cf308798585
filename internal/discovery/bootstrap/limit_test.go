package bootstrap

import (
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"
)

func TestSourceOf(t *testing.T) {
	for name, tc := range map[string]struct {
		addr net.Addr
		want string
	}{
		"IPv4, whatever the port":    {&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1234}, "10.0.0.1"},
		"IPv4 in IPv6":               {&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 1}, "10.0.0.1"},
		"IPv6 by its network":        {&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:3:4:5:6"), Port: 1}, "2001:db8:1:2::/64"},
		"IPv6 with a zone":           {&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0", Port: 1}, "fe80::/64"},
		"no address":                 {nil, ""},
		"an address that is no IP's": {&net.UnixAddr{Name: "/run/x.sock", Net: "unix"}, "/run/x.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sourceOf(tc.addr); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLimiter(t *testing.T) {
	at := time.Unix(1000, 0)
	l := newLimiter(Limits{SourceRate: 1, SourceBurst: 2, GlobalRate: 10, GlobalBurst: 3, Sources: 2})
	take := func(source string, want time.Duration) {
		t.Helper()
		if got := l.wait(source, at); got != want {
			t.Errorf("%s waits %s, want %s", source, got, want)
		}
	}
	take("a", 0)
	take("a", 0)
	for range 3 {
		take("a", time.Second) // its own bucket; takes nothing from the one for all
	}
	take("b", 0)
	for range 3 {
		take("b", 100*time.Millisecond) // the one for all; takes nothing from its own
	}
	at = at.Add(100 * time.Millisecond)
	take("b", 0)
	take("a", 900*time.Millisecond)
	at = at.Add(time.Hour)
	take("a", 0)
}

func TestSourcesAreForgottenInOrder(t *testing.T) {
	l := newLimiter(Limits{SourceRate: 0.001, SourceBurst: 1, GlobalRate: 1e6, GlobalBurst: 1e6, Sources: 100})
	at := time.Unix(1000, 0)
	if l.wait("old", at) != 0 || l.wait("old", at) == 0 {
		t.Fatal("the bucket does not hold one")
	}
	for i := range 1000 {
		l.wait(fmt.Sprint(i), at)
		if i < 50 {
			l.wait("old", at) // used, so not the one to be forgotten
		}
	}
	if len(l.bySource) != 100 || l.recent.Len() != 100 {
		t.Errorf("%d and %d sources are remembered, want 100", len(l.bySource), l.recent.Len())
	}
	if l.wait("999", at) == 0 {
		t.Error("a recent source was forgotten")
	}
	if l.wait("old", at) != 0 {
		t.Error("the least recent source is remembered")
	}
}

func TestRejectionsAreToldOfOnceAMinute(t *testing.T) {
	g := aggregate{last: map[rejection]*told{}}
	at := time.Unix(1000, 0)
	a := rejection{"a", ReasonNotAllowed}
	for i, want := range []int{1, 0, 0, 0} {
		if got := g.admit(a, at.Add(time.Duration(i)*time.Second)); got != want {
			t.Errorf("rejection %d: told of %d, want %d", i, got, want)
		}
	}
	if got := g.admit(rejection{"a", ReasonWeakKey}, at); got != 1 {
		t.Errorf("another reason: %d", got)
	}
	if got := g.admit(a, at.Add(time.Minute)); got != 4 {
		t.Errorf("after a minute it is told of %d, want 4", got)
	}
}

func TestRejectionsAreToldOfSixtyTimesAMinute(t *testing.T) {
	g := aggregate{last: map[rejection]*told{}}
	at := time.Unix(1000, 0)
	for minute := range 10 {
		sum := 0
		for i := range 5000 { // principals that are new each time
			now := at.Add(time.Duration(minute)*time.Minute + time.Duration(i)*10*time.Millisecond)
			sum += g.admit(rejection{fmt.Sprint(minute, i), ReasonUnauthenticated}, now)
		}
		if sum != tellMost || len(g.last) > 3*tellMost {
			t.Errorf("minute %d: told of %d, %d remembered", minute, sum, len(g.last))
		}
	}
}

func TestAFloodOfRefusalsDoesNotPushOutIssuances(t *testing.T) {
	a, err := newAudit(slog.New(slog.DiscardHandler), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1000, 0)
	a.record(t.Context(), "s", Entry{Time: at, Result: Issued, Serial: "1"})
	for i := range 3 * keep {
		a.record(t.Context(), "s", Entry{Time: at.Add(time.Duration(i)), Result: Refused, Reason: ReasonUnauthenticated})
	}
	got := a.entries()
	if len(got) != keep+1 || got[0].Serial != "1" {
		t.Errorf("%d entries, the first %+v", len(got), got[0])
	}
	if first, last := got[1].Time, got[keep].Time; !first.Equal(at.Add(2*keep)) || !last.Equal(at.Add(3*keep-1)) {
		t.Errorf("refusals from %s to %s", first, last)
	}
}
