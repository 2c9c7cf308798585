package health_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
)

func healthy() health.Facts {
	return health.Facts{Configured: true, Version: "v1", Envoy: true, Streaming: true, HasSVID: true}
}

func TestStateFollowsFromTheFacts(t *testing.T) {
	cases := map[string]struct {
		change        func(*health.Facts)
		state, reason string
	}{
		"all is well":                            {func(*health.Facts) {}, health.Ready, ""},
		"refused resources alone do not degrade": {func(f *health.Facts) { f.Refused = 3 }, health.Ready, ""},
		"what others check does not degrade":     {func(f *health.Facts) { f.Others = []fleet.Check{{Name: "other", State: health.Failed}} }, health.Ready, ""},
		"nothing yet":                            {func(f *health.Facts) { *f = health.Facts{} }, health.NotReady, health.NoIdentity},
		"an identity alone":                      {func(f *health.Facts) { *f = health.Facts{HasSVID: true} }, health.NotReady, health.Disconnected},
		"a stream but no Envoy":                  {func(f *health.Facts) { f.Configured, f.Envoy = false, false }, health.NotReady, health.EnvoyDisconnected},
		"a stream but no snapshot":               {func(f *health.Facts) { f.Configured = false }, health.NotReady, health.AwaitingSnapshot},
		"disconnected":                           {func(f *health.Facts) { f.Streaming = false }, health.Degraded, health.Disconnected},
		"restored, and no identity yet":          {func(f *health.Facts) { f.Streaming, f.HasSVID = false, false }, health.Degraded, health.Disconnected},
		"an expired SVID":                        {func(f *health.Facts) { f.Streaming, f.Expired = false, true }, health.Degraded, health.SVIDExpired},
		"an expired SVID on a stream":            {func(f *health.Facts) { f.Expired = true }, health.Degraded, health.SVIDExpired},
		"another wire version":                   {func(f *health.Facts) { f.Streaming, f.Skewed = false, true }, health.Degraded, health.WireVersionMismatch},
		"another wire version from the start":    {func(f *health.Facts) { f.Streaming, f.Skewed, f.Configured = false, true, false }, health.NotReady, health.WireVersionMismatch},
		"another wire version elsewhere":         {func(f *health.Facts) { f.Skewed = true }, health.Ready, ""},
		"Envoy gone":                             {func(f *health.Facts) { f.Envoy = false }, health.NotReady, health.EnvoyDisconnected},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := healthy()
			tc.change(&f)
			if s := (health.State{}).Next(f, time.Unix(1, 0)); s.State != tc.state || s.Reason != tc.reason {
				t.Errorf("got %s %q, want %s %q", s.State, s.Reason, tc.state, tc.reason)
			}
		})
	}
}

func TestWhatDoesNotChangeKeepsItsDate(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	s := health.State{}.Next(healthy(), at(1))
	s = s.Next(healthy(), at(2))
	f := healthy()
	f.Streaming, f.NoStream = false, errors.New("refused")
	s = s.Next(f, at(3))
	if !s.Since.Equal(at(3)) {
		t.Errorf("degraded since %s", s.Since)
	}
	f.Version = "v2"
	s = s.Next(f, at(4))
	if !s.Since.Equal(at(3)) || s.Version != "v2" {
		t.Errorf("a new version is no new state: %+v", s)
	}
	want := map[string]int64{health.CheckIdentity: 1, health.CheckStream: 3, health.CheckEnvoy: 1, health.CheckConfiguration: 1}
	for _, c := range s.Checks {
		if !c.Since.Equal(at(want[c.Name])) {
			t.Errorf("%s since %s", c.Name, c.Since)
		}
		if c.Name == health.CheckStream && (c.State != health.Failed || c.Reason != "Disconnected: refused") {
			t.Errorf("got %+v", c)
		}
	}
}

func TestHandler(t *testing.T) {
	cases := map[string]struct {
		method string
		state  string
		code   int
		body   string
	}{
		"not ready":          {http.MethodGet, health.NotReady, http.StatusServiceUnavailable, `{"state":"NotReady","reason":"r","since":"1970-01-01T00:00:01Z","version":"v","checks":null}`},
		"ready":              {http.MethodGet, health.Ready, http.StatusOK, `"state":"Ready"`},
		"degraded is served": {http.MethodGet, health.Degraded, http.StatusOK, `"state":"Degraded"`},
		"only looked at":     {http.MethodPost, health.Ready, http.StatusMethodNotAllowed, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			h := health.Handler(func() health.State {
				return health.State{State: tc.state, Reason: "r", Since: time.Unix(1, 0).UTC(), Version: "v"}
			})
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tc.method, "/readyz", nil))
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.body) {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
}
