//go:build component

package drain_test

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"aether.io/aether/internal/drain"
	"aether.io/aether/internal/envoyadmin"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/test/echo"
)

// running is a drain that runs, and the socket by which it is begun.
type running struct {
	*drain.Drain
	socket string
	phases chan drain.Phase
}

func startDrain(t *testing.T, e *envoy, terms drain.Terms) *running {
	t.Helper()
	r := &running{socket: filepath.Join(e.dir, "drain.sock"), phases: make(chan drain.Phase, 4)}
	log := slog.New(slog.DiscardHandler)
	var err error
	r.Drain, err = drain.New(drain.Config{
		Envoy: e, Absent: envoyadmin.ErrAbsent, Terms: terms, Log: log,
		OnChange: func(s drain.State) { r.phases <- s.Phase },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() { _ = r.Run(ctx); ended <- struct{}{} }()
	go func() { _ = inspect.Serve(ctx, log, r.socket, r.Handler()); ended <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-ended; <-ended })
	return r
}

// ask drains as the command does.
func (r *running) ask(t *testing.T) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		for { // Exits: it is drained, or the time is over. At first the socket may not be there.
			err := drain.Ask(ctx, r.socket)
			if err == nil || ctx.Err() != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

func (r *running) reaches(t *testing.T, want drain.Phase) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case p := <-r.phases:
			if p == want {
				return
			}
		case <-deadline:
			t.Fatalf("%s is not reached: %+v", want, r.State())
		}
	}
}

func startBackend(t *testing.T) *echo.Server {
	t.Helper()
	backend, err := echo.Start(t.Context(), echo.Config{Name: "backend"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(backend.Close)
	return backend
}

// A pod is replaced by another as a rolling update does it: new connections go to the new
// one once it is known that the old one is not ready any more.
func TestWhatIsSentWhileAProxyIsReplacedIsAnswered(t *testing.T) {
	backend := startBackend(t)
	before, after := startEnvoy(t, backend), startEnvoy(t, backend)
	service := &front{}
	service.to.Store(before)
	old := startDrain(t, before, drain.Terms{Delay: time.Second, Timeout: patience})

	one, two := send(t, service, 4, false), send(t, service, 2, true)
	one.more(t, 100)
	two.more(t, 100)
	slow := make(chan error, 1)
	slowClient := &http.Client{Transport: &http.Transport{DialContext: service.dial}}
	go func() { slow <- post(context.WithoutCancel(t.Context()), slowClient, "3s") }()
	eventually(t, "the slow request", func() bool { return before.connections() == 7 })

	asked := old.ask(t)
	old.reaches(t, drain.Leaving)
	one.more(t, 100) // still the old one: not all know yet
	two.more(t, 100)
	if n := after.connections(); n != 0 {
		t.Errorf("%d connections to the new one already", n)
	}
	service.to.Store(after)
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if s := old.State(); s.Phase != drain.Drained || s.Cut || s.Connections != 0 {
		t.Fatalf("%+v", s)
	}
	if err := <-slow; err != nil {
		t.Errorf("the slow request: %v", err)
	}
	if err := before.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := before.cmd.Wait(); err != nil {
		t.Errorf("Envoy ended with %v", err)
	}
	one.more(t, 100)
	two.more(t, 100)
	one.none(t)
	two.none(t)
}

// What cannot be asked to come back elsewhere is served until the time is over.
func TestAWebSocketLivesUntilTheTimeIsOver(t *testing.T) {
	backend := startBackend(t)
	e := startEnvoy(t, backend)
	d := startDrain(t, e, drain.Terms{Delay: 10 * time.Millisecond, Timeout: 3 * time.Second})
	ws := openWebSocket(t, e.address)
	asked := d.ask(t)
	d.reaches(t, drain.Waning)
	messages := 0
	for d.State().Phase != drain.Drained {
		if err := ws.echoes("hello"); err != nil {
			t.Fatalf("after %d messages: %v", messages, err)
		}
		messages++
	}
	if err := <-asked; err != nil {
		t.Fatal(err)
	}
	if s := d.State(); !s.Cut || s.Connections != 1 || messages == 0 {
		t.Errorf("%+v after %d messages, want it cut with one connection left", s, messages)
	}
	if err := ws.echoes("still there"); err != nil {
		t.Errorf("the drain itself ended the WebSocket: %v", err)
	}
}

func TestADrainOfNothingIsOver(t *testing.T) {
	backend := startBackend(t)
	e := startEnvoy(t, backend)
	if err := e.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = e.cmd.Wait()
	d := startDrain(t, e, drain.Terms{Delay: 10 * time.Millisecond, Timeout: patience})
	if err := <-d.ask(t); err != nil {
		t.Fatal(err)
	}
	if s := d.State(); s.Cut || s.Phase != drain.Drained {
		t.Errorf("%+v", s)
	}
}

// A proxy that is restarted while it drains begins anew, and so does its Envoy.
func TestAnotherProcessTakesTheDrainBack(t *testing.T) {
	backend := startBackend(t)
	e := startEnvoy(t, backend)
	client := &http.Client{Transport: &http.Transport{DialContext: func() *front { f := &front{}; f.to.Store(e); return f }().dial}}
	closes := func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://web.test/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.Close
	}
	if closes() {
		t.Fatal("connections are closed though nothing drains")
	}
	if err := e.WindDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if !closes() {
			t.Fatal("connections are not closed though it drains")
		}
	}
	startDrain(t, e, drain.Terms{Timeout: time.Second})
	eventually(t, "connections are kept", func() bool { return !closes() })
	client.CloseIdleConnections()
}
