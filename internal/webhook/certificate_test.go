package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// files runs Files of a new directory until the test ends.
func files(t *testing.T) (f *Files, dir string) {
	t.Helper()
	dir = t.TempDir()
	f, err := NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return f, dir
}

// serves waits until the server shows a certificate.
func (r *rig) serves(want *tls.Certificate) {
	r.Helper()
	deadline := time.Now().Add(patience)
	for {
		c := r.dial()
		got := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
		_ = c.Close()
		if got.Equal(want.Leaf) {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("it serves that of serial %s, want %s", got.SerialNumber, want.Leaf.SerialNumber)
		}
	}
}

// A certificate is replaced while reviews come in: none is lost, and what is no certificate
// replaces none.
func TestFilesAreFollowed(t *testing.T) {
	f, dir := files(t)
	r := start(t, Config{System: on, Certificates: f})
	if err := r.Usable(); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("without files: %v", err)
	}
	r.eventually(r.Lacks) // open, certificate or not
	a := newAuthority(t)
	one, two := a.issue(time.Now().Add(time.Hour)), a.issue(time.Now().Add(2*time.Hour))
	write(t, dir, one)
	r.eventually(func() error { return r.Usable() })
	r.serves(one)
	if got := r.notAfter(); got != float64(one.Leaf.NotAfter.Unix()) {
		t.Errorf("the metric says %v", got)
	}
	r.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = a.pool()
	if err := os.WriteFile(filepath.Join(dir, CertFile), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.eventually(func() error {
		if _, err := f.Certificate(); err == nil {
			return errors.New("the damage is not seen")
		}
		return nil
	})
	r.serves(one)
	if got := r.ask(review("CREATE", object("shop", "default", "{}"), nil)); !got.Allowed {
		t.Error("refused")
	}
	write(t, dir, two)
	r.serves(two)
	if got := r.ask(review("CREATE", object("shop", "default", "{}"), nil)); !got.Allowed {
		t.Error("refused over a connection that is older than the certificate")
	}
}

func (r *rig) eventually(is func() error) {
	r.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := is()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("not in time: %v", err)
		}
		<-tick.C
	}
}

// The certificate of a CA that API servers do not know yet waits until they do, unless there is
// no other.
func TestTheChoiceOfACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := newAuthority(t), newAuthority(t)
		now := time.Now()
		old, renewed, next := older.issue(now.Add(time.Hour)), older.issue(now.Add(2*time.Hour)), newer.issue(now.Add(3*time.Hour))
		var from fixed
		trusted := older.pool()
		c := chooser{from: &from, now: time.Now, log: slog.New(slog.DiscardHandler), trusts: func(c *tls.Certificate) bool {
			_, err := c.Leaf.Verify(x509.VerifyOptions{Roots: trusted, CurrentTime: time.Now()})
			return err == nil
		}}
		is := func(why string, want *tls.Certificate) {
			t.Helper()
			got, err := c.choose()
			if (want == nil) != (err != nil) || got != want {
				t.Errorf("%s: %v, %v", why, got, err)
			}
		}
		from.err = errors.New("not yet")
		is("there is none", nil)
		from.cert, from.err = old, nil
		is("the first", old)
		from.err = errors.New("away")
		is("the source has a fault", old)
		from.cert, from.err = next, nil
		is("nobody trusts the next", old)
		time.Sleep(time.Minute)
		is("a minute later neither", old)
		trusted = older.pool(newer)
		is("both are trusted by now", old)
		time.Sleep(settle)
		is("and have been for a while", next)
		from.cert = renewed
		trusted = older.pool()
		is("only the other is trusted", renewed)
		from.cert = next
		is("nobody trusts the next, again", renewed)
		time.Sleep(3 * time.Hour)
		from.cert = newer.issue(time.Now().Add(time.Hour))
		is("the one before has expired", from.cert)
		time.Sleep(2 * time.Hour)
		is("all have", nil)
	})
}
