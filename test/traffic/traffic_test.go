package traffic_test

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/traffic"
)

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Error(...any)          { r.failed = true }

func start(t *testing.T, port int) *echo.Server {
	t.Helper()
	s, err := echo.Start(t.Context(), echo.Config{Name: "backend", Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestNothingIsLostWhereNothingIsDone(t *testing.T) {
	s := start(t, 0)
	f := traffic.Start(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), "example.com")
	for deadline := time.After(time.Minute); len(f.Counts()) < len(traffic.Kinds); {
		select {
		case <-deadline:
			t.Fatalf("answers so far: %v", f.Counts())
		case <-time.After(10 * time.Millisecond):
		}
	}
	f.Stop(t)
}

func TestAServerThatGoesIsALossOfEachKind(t *testing.T) {
	for _, kind := range append(slices.Clone(traffic.Kinds), traffic.Once) {
		t.Run(string(kind), func(t *testing.T) {
			s := start(t, 0)
			f := traffic.Start(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)), "example.com", kind)
			s.Close()
			for deadline := time.After(time.Minute); f.Losses() == 0; {
				select {
				case <-deadline:
					t.Fatal("the client lost nothing")
				case <-time.After(10 * time.Millisecond):
				}
			}
			r := &recorder{TB: t}
			if f.Stop(r); !r.failed {
				t.Error("the test did not fail")
			}
		})
	}
}
