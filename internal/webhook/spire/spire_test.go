package spire_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"aether.io/aether/internal/webhook/spire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const name = "aether-controller-webhook.aether-system.svc"

// output is a log that may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// rig is a Source that runs, at a socket where nothing listens yet.
type rig struct {
	*testing.T
	*spire.Source
	socket string
	log    *output
	ahead  atomic.Int64 // of the clock, in nanoseconds
}

func start(t *testing.T) *rig {
	t.Helper()
	r := &rig{T: t, socket: socketPath(t), log: &output{}}
	s, err := spire.New(spire.Config{
		Socket: "unix://" + r.socket, ServerName: name, Log: slog.New(slog.NewTextHandler(r.log, nil)),
		Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Source = s
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
	return r
}

// await waits until is says nothing.
func (r *rig) await(is func() string) {
	r.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		wrong := is()
		if wrong == "" {
			return
		}
		select {
		case <-deadline.C:
			r.Fatalf("%s\nlog:\n%s", wrong, r.log)
		case <-tick.C:
		}
	}
}

// awaitReason waits until what is lacking is said with the words.
func (r *rig) awaitReason(words string) {
	r.Helper()
	r.await(func() string {
		_, err := r.Certificate()
		if err != nil && errors.Is(err, spire.ErrNone) && strings.Contains(err.Error(), words) {
			return ""
		}
		return "it lacks: " + errorText(err) + "; want " + words
	})
}

func errorText(err error) string {
	if err == nil {
		return "nothing"
	}
	return err.Error()
}

// awaitChange waits until it is told that something is another.
func (r *rig) awaitChange() {
	r.Helper()
	select {
	case <-r.Changed():
	case <-time.After(20 * time.Second):
		_, err := r.Certificate()
		r.Fatalf("no change was told; it lacks %s\nlog:\n%s", errorText(err), r.log)
	}
}

// serial is that of the certificate that a client is shown which trusts the roots and calls by
// the name.
func (r *rig) serial() int64 {
	r.Helper()
	a, b := net.Pipe()
	server := tls.Server(a, &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return r.Certificate() },
	})
	client := tls.Client(b, &tls.Config{RootCAs: r.Roots().Pool(), ServerName: name, MinVersion: tls.VersionTLS13})
	shaken := make(chan error, 1)
	go func() { shaken <- server.HandshakeContext(r.Context()) }()
	err := client.HandshakeContext(r.Context())
	_ = b.Close()
	_ = a.Close()
	if other := <-shaken; err != nil {
		r.Fatalf("handshake: %v; the server: %v", err, other)
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func hour() time.Time { return time.Now().Add(time.Hour) }

func TestWhileThereIsNoSPIRETheReasonIsToldAndItIsTakenUpWhenItComes(t *testing.T) {
	r := start(t)
	r.awaitReason("no such file")
	if !r.Roots().IsZero() {
		t.Error("there are roots")
	}
	a, _ := startAgent(t, r.socket)
	ca := newAuthority(t)
	a.give(ca.svid(t, 7, hour(), []authority{ca}, name))
	r.awaitChange()
	if _, err := r.Certificate(); err != nil {
		t.Error(err)
	}
	if got := r.serial(); got != 7 {
		t.Errorf("certificate %d", got)
	}
}

func TestEachRotationIsServedAndTold(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	first, second := newAuthority(t), newAuthority(t)
	for _, step := range []struct {
		serial int64
		by     authority
		roots  []authority
	}{
		{1, first, []authority{first}},
		{2, first, []authority{first}},
		{3, first, []authority{first, second}}, // prepared
		{4, second, []authority{first, second}},
		{5, second, []authority{second}},
	} {
		a.give(step.by.svid(t, step.serial, hour(), step.roots, name))
		r.awaitChange()
		if got, roots := r.serial(), len(r.Roots().Certificates()); got != step.serial || roots != len(step.roots) {
			t.Errorf("certificate %d with %d roots, want %d with %d", got, roots, step.serial, len(step.roots))
		}
	}
}

func TestTheSameAgainIsNoChange(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	ca := newAuthority(t)
	same := ca.svid(t, 1, hour(), []authority{ca}, name)
	a.give(same)
	r.awaitChange()
	a.give(same)
	a.give(ca.svid(t, 2, hour(), []authority{ca}, name)) // after it, the one before has been seen
	r.awaitChange()
	if n := strings.Count(r.log.String(), `msg="webhook certificate from SPIRE"`); n != 2 {
		t.Errorf("%d certificates were told of, want 2:\n%s", n, r.log)
	}
}

func TestAnSVIDWithoutTheNameIsNamedAndNotServed(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	ca := newAuthority(t)
	a.give(ca.svid(t, 1, hour(), []authority{ca}, "another.aether-system.svc"))
	r.awaitReason("its SVID " + id + " has not the DNS name " + name + ": give it to the registration entry (dnsNames)")

	// Of several, the one with the name is taken.
	a.give(ca.svid(t, 2, hour(), []authority{ca}), ca.svid(t, 3, hour(), []authority{ca}, name))
	r.awaitChange()
	if got := r.serial(); got != 3 {
		t.Errorf("certificate %d", got)
	}

	// What was right is kept while it is valid.
	a.give(ca.svid(t, 4, hour(), []authority{ca}))
	r.await(func() string {
		if strings.Count(r.log.String(), "no new webhook certificate") == 2 {
			return ""
		}
		return "it did not tell of the second that has not the name"
	})
	if got := r.serial(); got != 3 {
		t.Errorf("certificate %d", got)
	}
	r.ahead.Store(int64(2 * time.Hour))
	r.awaitReason("the last one ended at")
	r.awaitReason("has not the DNS name")
}

func TestWithoutAnEntryTheReasonIsTheAgents(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	a.answers <- status.Error(codes.PermissionDenied, "no identity issued")
	r.awaitReason("no identity issued")
}

func TestAnAgentThatGoesAndComesBackIsFollowed(t *testing.T) {
	r := start(t)
	a, stop := startAgent(t, r.socket)
	ca := newAuthority(t)
	a.give(ca.svid(t, 1, hour(), []authority{ca}, name))
	r.awaitChange()
	stop()
	r.await(func() string {
		if strings.Contains(r.log.String(), "no new webhook certificate") {
			return ""
		}
		return "it did not tell that the agent has gone"
	})
	if _, err := r.Certificate(); err != nil {
		t.Errorf("what is valid is served no more: %v", err)
	}
	a, _ = startAgent(t, r.socket)
	a.give(ca.svid(t, 2, hour(), []authority{ca}, name))
	r.awaitChange()
	if got := r.serial(); got != 2 {
		t.Errorf("certificate %d", got)
	}
}

// The library takes this as a reason to give up.
func TestAnAgentThatRefusesTheCallIsAskedAgain(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	a.answers <- status.Error(codes.InvalidArgument, "not like this")
	r.awaitReason("not like this")
	ca := newAuthority(t)
	a.give(ca.svid(t, 1, hour(), []authority{ca}, name))
	r.awaitChange()
}

func TestABundleOfNobodyIsNotTaken(t *testing.T) {
	r := start(t)
	a, _ := startAgent(t, r.socket)
	ca := newAuthority(t)
	a.give(ca.svid(t, 1, hour(), nil, name))
	r.awaitReason("is empty")
}

func TestWhatCannotBeASocketIsRefused(t *testing.T) {
	for socket, config := range map[string]spire.Config{
		"no server name":  {Socket: "unix:///run/agent.sock"},
		"workload socket": {Socket: "agent.sock", ServerName: name},
	} {
		if _, err := spire.New(config); err == nil || !strings.Contains(err.Error(), socket) {
			t.Errorf("%+v: %v, want %s", config, err, socket)
		}
	}
}
