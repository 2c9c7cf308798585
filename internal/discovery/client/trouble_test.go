package client_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/test/controller"
)

func TestRenewalOverlapsWithoutResendOrGap(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	// Each case is told when the new stream has subscribed and the old one is still there.
	cases := map[string]struct {
		then func(t *testing.T, r *rig, old, next *controller.Stream)
	}{
		"the new stream's first message ends the old one": {func(t *testing.T, r *rig, old, next *controller.Stream) {
			old.Snapshot(step(2, version(a, b), b)) // waits: the new one was promised a difference to a
			if refs := old.AskInventory(t); len(refs) != 1 || len(r.envoy.applied) != 0 {
				t.Errorf("the old stream's snapshot did not wait: %v is held", refs)
			}
			next.Snapshot(step(1, version(a, b), b))
			if got := next.Answer(t); got.Version != version(a, b) || got.Nonce != 1 {
				t.Errorf("answered %+v", got)
			}
			controller.Wait(t, "end of the old stream", old.Gone)
			if u := <-r.envoy.applied; len(u.Changed) != 1 || u.Full || len(r.envoy.applied) != 0 {
				t.Errorf("applied %+v", u)
			}
		}},
		"the controller ends the old one for the new": {func(t *testing.T, r *rig, old, next *controller.Stream) {
			old.End(status.Error(codes.Aborted, "superseded"))
			r.wait(t, "second stream", func() bool { return strings.Count(r.log.String(), "stream established") == 2 })
			next.Snapshot(step(1, version(a, b), b))
			if got := next.Answer(t); got.Version != version(a, b) {
				t.Errorf("answered %+v", got)
			}
		}},
		"the new one fails and the old one goes on": {func(t *testing.T, r *rig, old, next *controller.Stream) {
			old.Snapshot(step(2, version(a, b), b))
			next.End(unavailable())
			if got := old.Answer(t); got.Version != version(a, b) || got.Nonce != 2 {
				t.Errorf("answered %+v", got)
			}
			again := r.Next(t)
			if again.Subscribe.GetHaveVersion() != version(a, b) {
				t.Errorf("resumed with %v", again.Subscribe)
			}
			again.Snapshot(step(1, version(a, b)))
			controller.Wait(t, "end of the old stream", old.Gone)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := start(t, controller.New(t), newEnvoy())
			old := r.establish(t, a)
			old.Renew()
			next := r.Next(t)
			if next.Serial == old.Serial || next.Subscribe.GetHaveVersion() != version(a) {
				t.Errorf("serials %s and %s, resumed with %v", old.Serial, next.Serial, next.Subscribe)
			}
			select {
			case <-old.Gone:
				t.Fatal("the old stream ended before the new one was there")
			default:
			}
			tc.then(t, r, old, next)
			for range len(r.states) {
				if s := <-r.states; s.State != health.Ready {
					t.Errorf("was %+v meanwhile", s)
				}
			}
		})
	}
}

func TestGoodbyeKeepsTheStreamUntilAnotherIsThere(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a := res(t, "a", "1")
	old := r.establish(t, a)
	old.Goodbye(time.Millisecond)
	next := r.Next(t)
	if next.Subscribe.GetHaveVersion() != version(a) {
		t.Errorf("resumed with %v", next.Subscribe)
	}
	next.Snapshot(step(1, version(a)))
	next.Answer(t)
	controller.Wait(t, "end of the old stream", old.Gone)
	for range len(r.states) {
		if s := <-r.states; s.State != health.Ready {
			t.Errorf("was %+v meanwhile", s)
		}
	}
}

func TestGoodbyeThatEndsAtOnce(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a := res(t, "a", "1")
	old := r.establish(t, a)
	old.Goodbye(0)
	old.End(nil)
	r.establish(t, a)
}

func TestAControllerThatVanishesLeavesTheProxyDegradedAndServing(t *testing.T) {
	c := controller.New(t)
	r := start(t, c, newEnvoy())
	a := res(t, "a", "1")
	r.establish(t, a)
	c.Streams.Down()
	c.Bootstrap.Down()
	r.state(t, health.Degraded, health.Disconnected)
	r.wait(t, "trouble that goes on for a while", func() bool {
		return strings.Count(r.log.String(), "no stream to the controller") >= 4
	})
	if n := strings.Count(r.log.String(), `level=WARN msg="no stream to the controller" endpoint=`+strings.TrimPrefix(c.Streams.Endpoint(), "https://")); n < 1 || n > 2 {
		t.Errorf("the trouble was told %d times", n) // the lost stream, then the connection that is refused
	}
	if code, s := readyz(t, r.client); code != http.StatusOK || s.State != health.Degraded || s.Version != version(a) {
		t.Errorf("%d %+v", code, s)
	}
	if held := r.envoy.Held(); held.Version != version(a) {
		t.Errorf("held is %+v", held)
	}
	c.Streams.Up()
	c.Bootstrap.Up()
	if st := r.Next(t); st.Subscribe.GetHaveVersion() != version(a) {
		t.Errorf("resumed with %v", st.Subscribe)
	}
}

func TestAnExpiredSVIDIsNoDeadEnd(t *testing.T) {
	c := controller.New(t)
	refuse := false
	c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		if refuse {
			return nil, status.Error(codes.Unavailable, "CA unusable")
		}
		refuse = true
		return c.Issue(c.CA, req, controller.ProxyID, 2*time.Second), nil
	})
	r := start(t, c, newEnvoy())
	a := res(t, "a", "1")
	st := r.establish(t, a)
	r.state(t, health.Degraded, health.SVIDExpired)
	st.End(unavailable()) // as the controller does with a stream whose SVID has expired
	c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return c.Issue(c.CA, req, controller.ProxyID, time.Hour), nil
	})
	again := r.establish(t, a)
	if again.Subscribe.GetHaveVersion() != version(a) || again.Serial == st.Serial {
		t.Errorf("resumed with %v", again.Subscribe)
	}
	if strings.Contains(r.log.String(), dial.ErrRefused.Error()) {
		t.Error("a stream was tried with the expired SVID")
	}
}

func TestOnlyTheControllerIsSubscribedTo(t *testing.T) {
	foreign := controller.NewCA(t)
	cases := map[string]func(c *controller.Controller){
		"another identity of the trust domain": func(c *controller.Controller) { c.Present(c.CA.Server(t, controller.ProxyID)) },
		"the right identity by a foreign root": func(c *controller.Controller) { c.Present(foreign.Server(t, controller.ServerID)) },
	}
	for name, impersonate := range cases {
		t.Run(name, func(t *testing.T) {
			c := controller.New(t)
			c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
				impersonate(c) // after the bootstrap's own handshake
				return c.Issue(c.CA, req, controller.ProxyID, time.Hour), nil
			})
			r := start(t, c, newEnvoy())
			r.wait(t, "a stream check that says why", func() bool {
				return slices.ContainsFunc(r.client.State().Checks, func(k fleet.Check) bool {
					return k.Name == health.CheckStream && strings.Contains(k.Reason, dial.ErrHandshake.Error())
				})
			})
			if len(c.Opened) != 0 {
				t.Fatal("it was subscribed to")
			}
			c.Present(c.CA.Server(t, controller.ServerID))
			r.establish(t, res(t, "a", "1"))
		})
	}
}

func TestACertificateThatIsNotAcceptedIsRenewed(t *testing.T) {
	c := controller.New(t)
	coming := controller.NewCA(t)
	c.Trust(coming)
	issuer := c.CA
	c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		answer := c.Issue(issuer, req, controller.ProxyID, time.Hour)
		issuer = coming
		return answer, nil
	})
	r := start(t, c, newEnvoy())
	r.establish(t, res(t, "a", "1"))
	if n := r.identity.Current().Sequence(); n < 2 {
		t.Errorf("it is SVID %d", n)
	}
}

func TestAnotherWireVersionEndsTheTryingUntilABootstrapAnswerMatches(t *testing.T) {
	c := controller.New(t)
	theirs := make(chan uint32, 1)
	theirs <- 2
	c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		answer := c.Issue(c.CA, req, controller.ProxyID, time.Hour)
		answer.WireVersion = <-theirs
		theirs <- answer.GetWireVersion()
		return answer, nil
	})
	r := start(t, c, newEnvoy(res(t, "a", "1")), func(cfg *client.Config) { cfg.SkewRenew = 50 * time.Millisecond })
	r.Next(t).End(status.Error(codes.FailedPrecondition, "wire version 1, want 2"))
	r.state(t, health.Degraded, health.WireVersionMismatch)
	for range 5 { // the renewals that go on
		controller.Wait(t, "a bootstrap request", c.Asked)
	}
	if len(c.Opened) != 0 {
		t.Error("the stream was tried again")
	}
	if code, s := readyz(t, r.client); code != http.StatusOK || s.Reason != health.WireVersionMismatch {
		t.Errorf("%d %+v", code, s)
	}
	text := r.log.String()
	if strings.Count(text, "FAILED_PRECONDITION") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, " wire_version=1 server_wire_version=2") {
		t.Errorf("log:\n%s", text)
	}
	<-theirs
	theirs <- 1
	r.Next(t).Snapshot(whole(1, res(t, "a", "1")))
	r.state(t, health.Ready, "")
}

func TestAnotherWireVersionOnARenewedStreamKeepsTheOldOne(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b := res(t, "a", "1"), res(t, "b", "1")
	old := r.establish(t, a)
	old.Renew()
	r.Next(t).End(status.Error(codes.FailedPrecondition, "wire version"))
	old.Snapshot(step(2, version(a, b), b))
	if got := old.Answer(t); got.Version != version(a, b) {
		t.Errorf("answered %+v", got)
	}
	if s := r.client.State(); s.State != health.Ready {
		t.Errorf("state %+v", s)
	}
	old.End(unavailable())
	r.state(t, health.Degraded, health.WireVersionMismatch)
}

func TestPushedRootsAreTrustedReportedAndHeld(t *testing.T) {
	c := controller.New(t)
	r := start(t, c, newEnvoy())
	coming := controller.NewCA(t)
	bundle := own(t, "trust", &discoveryv1.TrustBundle{RootsDer: [][]byte{c.CA.Root.Raw, coming.Root.Raw}})
	a := res(t, "a", "1")
	st := r.Next(t)
	st.Snapshot(whole(1, a, bundle))
	if got := st.Answer(t); got.Version != version(a, bundle) || len(got.Refused) != 0 {
		t.Errorf("answered %+v", got)
	}
	st.Status(t, "both pushed roots", func(m *discoveryv1.NodeStatus) bool { return len(m.GetPushedRoots()) == 2 })
	if r.envoy.Held().Version != version(a, bundle) {
		t.Error("the bundle is not held")
	}

	c.Present(coming.Server(t, controller.ServerID)) // its root is not mounted
	st.End(unavailable())
	again := r.Next(t)
	if again.Subscribe.GetHaveVersion() != version(a, bundle) {
		t.Errorf("resumed with %v", again.Subscribe)
	}

	broken := own(t, "trust", &discoveryv1.TrustBundle{RootsDer: [][]byte{[]byte("garbage")}})
	again.Snapshot(step(1, version(a, broken), broken))
	if got := again.Answer(t); len(got.Refused) != 1 || got.Refused[0].Name != broken.Name {
		t.Errorf("answered %+v", got)
	}
	if _, pushed := r.identity.Roots(); len(pushed) != 2 {
		t.Errorf("roots that were in use are gone: %v", pushed)
	}
	again.End(unavailable())
	last := r.Next(t)
	if refused := last.Subscribe.GetRefused(); len(refused) != 1 || refused[0].GetName() != "trust" {
		t.Errorf("resumed with %v", last.Subscribe)
	}
	last.Snapshot(snapshotWithout(bundle.Name, version(a)))
	if got := last.Answer(t); len(got.Refused) != 0 {
		t.Errorf("answered %+v", got)
	}
	last.Status(t, "no pushed roots", func(m *discoveryv1.NodeStatus) bool { return len(m.GetPushedRoots()) == 0 })
}

func TestARestoredTrustBundleCountsBeforeTheFirstStream(t *testing.T) {
	c := controller.New(t)
	coming := controller.NewCA(t)
	c.Answer(func(req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return c.Issue(c.CA, req, controller.ProxyID, time.Hour), nil
	})
	c.Present(coming.Server(t, controller.ServerID))
	bundle := own(t, "trust", &discoveryv1.TrustBundle{RootsDer: [][]byte{coming.Root.Raw}})
	r := start(t, c, newEnvoy(bundle))
	if st := r.Next(t); st.Subscribe.GetHaveVersion() != version(bundle) {
		t.Errorf("subscribed with %v", st.Subscribe)
	}
}
