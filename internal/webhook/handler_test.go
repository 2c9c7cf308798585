package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	configv1 "aether.io/aether/api/config/v1"
)

func body(t testing.TB, r *admissionv1.AdmissionReview) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What is no review of a MeshConfig gets an error and no verdict, and costs no more than its
// bounds.
func TestWhatIsNoReviewIsRefused(t *testing.T) {
	good := review("CREATE", object("shop", "default", "{}"), nil)
	change := func(f func(*admissionv1.AdmissionReview)) string {
		r := good.DeepCopy()
		f(r)
		return body(t, r)
	}
	deep := strings.Repeat(`{"a":`, 20000) + "1" + strings.Repeat("}", 20000)
	r := start(t, Config{System: on})
	for name, tc := range map[string]struct {
		body, want string
		code       int
	}{
		"nothing":            {"", "read AdmissionReview", 400},
		"no JSON":            {"apiVersion: v1", "read AdmissionReview", 400},
		"not all of it":      {body(t, good)[:100], "read AdmissionReview", 400},
		"two of them":        {body(t, good) + body(t, good), "read AdmissionReview", 400},
		"a list":             {"[]", "read AdmissionReview", 400},
		"null":               {"null", "want admission.k8s.io/v1 AdmissionReview", 400},
		"another version":    {change(func(r *admissionv1.AdmissionReview) { r.APIVersion = "admission.k8s.io/v1beta1" }), "want admission.k8s.io/v1 AdmissionReview", 400},
		"another kind":       {change(func(r *admissionv1.AdmissionReview) { r.Kind = "TokenReview" }), `got "admission.k8s.io/v1" "TokenReview"`, 400},
		"no request":         {change(func(r *admissionv1.AdmissionReview) { r.Request = nil }), "no request", 400},
		"no uid":             {change(func(r *admissionv1.AdmissionReview) { r.Request.UID = "" }), "without uid", 400},
		"of another kind":    {change(func(r *admissionv1.AdmissionReview) { r.Request.Kind.Kind = "Gateway" }), `"Gateway"`, 400},
		"of another version": {change(func(r *admissionv1.AdmissionReview) { r.Request.Kind.Version = "v2" }), `"v2"`, 400},
		"no object":          {change(func(r *admissionv1.AdmissionReview) { r.Request.Object.Raw = nil }), `"CREATE" without an object`, 400},
		"an object of others": {change(func(r *admissionv1.AdmissionReview) {
			r.Request.Object.Raw = []byte(`{"apiVersion":"v1","kind":"Pod"}`)
		}), `got "v1" "Pod"`, 400},
		"an object that goes very deep":   {strings.Replace(body(t, good), `"spec":{}`, `"spec":`+deep, 1), "exceeded max depth", 400},
		"as large as may be, and no JSON": {strings.Repeat("x", maxBody), "read AdmissionReview", 400},
		"larger":                          {strings.Repeat("x", maxBody+1), "at most 3407872 bytes", 413},
	} {
		t.Run(name, func(t *testing.T) {
			if code, text := r.post(strings.NewReader(tc.body)); code != tc.code || !strings.Contains(text, tc.want) {
				t.Errorf("%d %s, want %d %s", code, text, tc.code, tc.want)
			}
		})
	}
	t.Run("larger, in chunks", func(t *testing.T) {
		if code, text := r.post(io.MultiReader(strings.NewReader(strings.Repeat("x", maxBody+1)))); code != 413 {
			t.Errorf("%d %s", code, text)
		}
	})
	for name, tc := range map[string]struct {
		method, path, media string
		code                int
	}{
		"GET":               {"GET", Path, "application/json", 405},
		"another path":      {"POST", "/mutate", "application/json", 404},
		"YAML":              {"POST", Path, "application/yaml", 415},
		"without a type":    {"POST", Path, "", 415},
		"JSON with charset": {"POST", Path, "application/json; charset=utf-8", 200},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://"+r.address+tc.path, strings.NewReader(body(t, good)))
			if err != nil {
				t.Fatal(err)
			}
			if tc.media != "" {
				req.Header.Set("Content-Type", tc.media)
			}
			if code, text := r.send(req); code != tc.code {
				t.Errorf("%d %s", code, text)
			}
		})
	}
	if n := r.count(resultMalformed); n != 22 {
		t.Errorf("%v were counted", n)
	}
	if got := r.ask(good); !got.Allowed {
		t.Error("after all of these a good one is refused")
	}
}

func TestALargeReviewIsJudged(t *testing.T) {
	r := start(t, Config{System: on})
	padding := strings.Repeat("x", 1<<20)
	for range maxLarge + 2 { // a place is given back
		old := object("shop", "default", "{}")
		old = bytes.Replace(old, []byte(`"metadata":{`), fmt.Appendf(nil, `"metadata":{"padding":%q,`, padding), 1)
		got := r.ask(review("UPDATE", bytes.Replace(old, []byte(`"spec":{}`), []byte(`"spec":{"proxy":{"traceSampleRate":2}}`), 1), old))
		if got.Allowed || !strings.Contains(got.Result.Message, "spec.proxy.traceSampleRate") {
			t.Fatalf("%+v", got)
		}
	}
}

// A review is in memory many times over while it is judged, and whoever sends it is not known.
func TestFewReviewsAreJudgedAtATime(t *testing.T) {
	begun, goOn := make(chan struct{}, 4*maxJudged), make(chan struct{})
	var now, most atomic.Int32
	r := start(t, Config{System: on, Release: func() *configv1.MeshConfig {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		begun <- struct{}{}
		<-goOn
		now.Add(-1)
		return nil
	}})
	text := body(t, review("CREATE", object("shop", "default", "{}"), nil))
	var asking sync.WaitGroup
	for range 4 * maxJudged {
		asking.Go(func() {
			if code, answer := r.post(strings.NewReader(text)); code != http.StatusOK {
				t.Errorf("%d %s", code, answer)
			}
		})
	}
	for range maxJudged {
		<-begun
	}
	for range 4 * maxJudged { // one ends, and one begins
		goOn <- struct{}{}
	}
	asking.Wait()
	if most.Load() != maxJudged {
		t.Errorf("%d were judged at a time, want %d", most.Load(), maxJudged)
	}
}

// dial is a connection of somebody who does not keep to what is usual.
func (r *rig) dial() net.Conn {
	r.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true}}
	c, err := d.DialContext(r.Context(), "tcp", r.address)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		r.Fatal(err)
	}
	return c
}

// Strangers who begin bodies, small and large, and never end them keep nobody waiting who has
// an ordinary review, and are cut off.
func TestSlowBodiesHoldUpNobody(t *testing.T) {
	r := start(t, Config{System: on})
	var slow []net.Conn
	for i := range 4 * maxLarge {
		c := r.dial()
		text := "{"
		if i%2 == 0 {
			text = strings.Repeat("x", small+1)
		}
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", Path, maxBody, text); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, c)
	}
	if got := r.ask(review("CREATE", object("shop", "default", "{}"), nil)); !got.Allowed {
		t.Error("refused")
	}
	for _, c := range slow {
		if _, err := io.Copy(io.Discard, c); err != nil { // until it is closed
			if timeout, is := errors.AsType[net.Error](err); is && timeout.Timeout() {
				t.Fatal("a slow body is waited for without end")
			}
		}
	}
	if n := r.count(resultBusy); n == 0 {
		t.Error("no large body waited for its place in vain")
	}
	if got := r.ask(review("CREATE", object("shop", "default", fmt.Sprintf(`{"padding":%q}`, strings.Repeat("x", 2*small))), nil)); !got.Allowed {
		t.Error("a large review is refused afterwards")
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	r := start(t, Config{System: on})
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}}
	if c, err := d.DialContext(t.Context(), "tcp", r.address); err == nil {
		_ = c.Close()
		t.Error("TLS 1.2 is spoken")
	}
	var plain net.Dialer
	c, err := plain.DialContext(t.Context(), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\n\r\n", Path); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(c)
	if !bytes.HasPrefix(text, []byte("HTTP/1.0 400")) {
		t.Errorf("without TLS it is answered %q", text)
	}
}

// Reviews that are under way when the server is told to end are answered, and so are those that
// come before who sends them has learned of it.
func TestAnEndLosesNoReview(t *testing.T) {
	r := startLingering(t, Config{System: on}, time.Second)
	text := body(t, review("CREATE", object("shop", "default", "{}"), nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ending := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { // ends once the server says that connections end
			for ctx.Err() == nil {
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.address+Path, strings.NewReader(text))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", "application/json")
				resp, err := r.client.Do(req)
				if err != nil {
					t.Errorf("a review is lost: %v", err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.Close {
					return
				}
			}
		})
	}
	wg.Go(func() { close(ending); r.stop() })
	<-ending
	wg.Wait()
	if err := r.Lacks(); err == nil {
		t.Error("it says that it is open after its end")
	}
}
