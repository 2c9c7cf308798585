package bootstrap_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// verify checks what a client received as a client does, and returns its leaf.
func verify(t testing.TB, resp *discoveryv1.BootstrapResponse) (*x509.Certificate, spiffeid.Identity) {
	t.Helper()
	roots, inter := x509.NewCertPool(), x509.NewCertPool()
	for _, der := range resp.GetTrustBundleDer() {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		roots.AddCert(c)
	}
	for _, der := range resp.GetSvidChainDer()[1:] {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		inter.AddCert(c)
	}
	leaf, err := x509.ParseCertificate(resp.GetSvidChainDer()[0])
	if err != nil {
		t.Fatal(err)
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: inter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := leaf.Verify(opts); err != nil {
		t.Fatal(err)
	}
	if !leaf.NotAfter.Equal(resp.GetNotAfter().AsTime()) {
		t.Errorf("not after %s in the answer, %s in the leaf", resp.GetNotAfter().AsTime(), leaf.NotAfter)
	}
	peer, err := spiffeid.PeerFromCertificate(domain(t), leaf)
	if err != nil {
		t.Fatal(err)
	}
	return leaf, peer
}

func TestAProxyObtainsItsSVIDWhateverItsWireVersion(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	client := r.dial()
	for _, version := range []uint32{0, discovery.WireVersion, 999} {
		req := request(t, e.Token)
		req.WireVersion = version
		resp, err := client.Bootstrap(soon(t), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetWireVersion() != discovery.WireVersion {
			t.Errorf("the server's version is %d in the answer", resp.GetWireVersion())
		}
		leaf, peer := verify(t, resp)
		if got := peer.ID.String(); got != "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy" || peer.Pod != e.Identity.Pod {
			t.Errorf("issued to %s %+v", got, peer.Pod)
		}
		last := r.server.Audit()[len(r.server.Audit())-1]
		want := bootstrap.Entry{
			Time: last.Time, Result: bootstrap.Issued, Count: 1, Addr: last.Addr, Identity: peer.ID.String(), Pod: "proxy-1",
			PodUID: "uid-of-proxy-1", Node: "node-1", Serial: fmt.Sprintf("%032x", leaf.SerialNumber), NotAfter: leaf.NotAfter,
			KeyID: hex.EncodeToString(leaf.AuthorityKeyId),
		}
		if diff := cmp.Diff(want, last); diff != "" {
			t.Errorf("audit: %s", diff)
		}
	}
	if diff := cmp.Diff(map[string]float64{"issued ": 3}, r.counts()); diff != "" {
		t.Error(diff)
	}
}

// The caller asks, in its request, for everything that it might like to be.
func TestNothingIsTakenFromTheRequestButItsKey(t *testing.T) {
	mine, other := proxy(), entry("shop", "edge-coxswain", "edge-1")
	r := newRig(t, nil, mine, other)
	pod, err := spiffeid.MarshalPod(other.Identity.Pod)
	if err != nil {
		t.Fatal(err)
	}
	otherID, err := other.Identity.ID(domain(t))
	if err != nil {
		t.Fatal(err)
	}
	isCA, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t, elliptic.P256())
	req := request(t, mine.Token)
	req.CsrDer = newCSR(t, &x509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "aether-controller", Organization: []string{"system:masters"}},
		DNSNames:    []string{"coxswain-controller-discovery"},
		IPAddresses: []net.IP{{127, 0, 0, 1}},
		URIs:        []*url.URL{controller(t).URL(), otherID.URL()},
		ExtraExtensions: []pkix.Extension{
			pod,
			{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA},
			{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte{5, 0}},
		},
	}, key)
	resp, err := r.dial().Bootstrap(soon(t), req)
	if err != nil {
		t.Fatal(err)
	}
	leaf, peer := verify(t, resp)
	if !leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool }).Equal(key.Public()) {
		t.Error("another key was certified")
	}
	if want, _ := mine.Identity.ID(domain(t)); peer.ID != want || peer.Pod != mine.Identity.Pod {
		t.Errorf("issued to %s %+v", peer.ID, peer.Pod)
	}
	if leaf.IsCA || len(leaf.Subject.Names)+len(leaf.DNSNames)+len(leaf.IPAddresses) != 0 || len(leaf.URIs) != 1 {
		t.Errorf("CA %v, subject %s, names %v %v %v", leaf.IsCA, leaf.Subject, leaf.DNSNames, leaf.IPAddresses, leaf.URIs)
	}
	if len(leaf.Extensions) != 7 {
		t.Errorf("%d extensions", len(leaf.Extensions))
	}
}

func TestTokensThatProveNobody(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	client := r.dial()
	text := e.Token.Reveal()
	var first error
	for name, token := range map[string]string{
		"none":                "",
		"a random one":        attest.NewToken().Reveal(),
		"a prefix":            text[:len(text)-1],
		"a good one and more": text + "x",
		"a bearer's header":   "Bearer " + text,
	} {
		t.Run(name, func(t *testing.T) {
			for _, csr := range [][]byte{request(t, e.Token).GetCsrDer(), []byte("garbage")} {
				resp, err := client.Bootstrap(soon(t), &discoveryv1.BootstrapRequest{SaToken: token, CsrDer: csr})
				wantCode(t, err, codes.Unauthenticated)
				if first == nil {
					first = err
				}
				if resp != nil || err.Error() != first.Error() {
					t.Errorf("got %v and %q: the caller learns more than from %q", resp, err, first)
				}
			}
		})
	}
	for _, e := range r.server.Audit() {
		if e.Result != bootstrap.Refused || e.Reason != bootstrap.ReasonUnauthenticated || e.Identity != "" || e.Addr == "" {
			t.Errorf("audit: %+v", e)
		}
	}
}

func TestATokenThatWasWithdrawn(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	client := r.dial()
	if _, err := client.Bootstrap(soon(t), request(t, e.Token)); err != nil {
		t.Fatal(err)
	}
	if err := attest.WriteTokenFile(r.tokens, []attest.Entry{proxy()}); err != nil {
		t.Fatal(err)
	}
	_, err := client.Bootstrap(soon(t), request(t, e.Token))
	wantCode(t, err, codes.Unauthenticated)
	if err := os.Remove(r.tokens); err != nil {
		t.Fatal(err)
	}
	_, err = client.Bootstrap(soon(t), request(t, e.Token))
	wantCode(t, err, codes.Unavailable)
}

func TestRightsByIdentity(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace, account string
		want               codes.Code
	}{
		"the shared proxy of the release":               {release, "coxswain-shared-proxy", codes.OK},
		"a shared proxy elsewhere":                      {"shop", "coxswain-shared-proxy", codes.PermissionDenied},
		"a dedicated Gateway's account":                 {"shop", "edge-coxswain", codes.OK},
		"that account in another namespace":             {"bank", "edge-coxswain", codes.PermissionDenied},
		"a Gateway's account without a class":           {"shop", "edge", codes.PermissionDenied},
		"the default account":                           {release, "default", codes.PermissionDenied},
		"the controller, also by a Gateway of its name": {release, "aether-controller", codes.PermissionDenied},
		"an account of the controller's name elsewhere": {"shop", "aether-controller", codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			e := entry(tc.namespace, tc.account, "pod-1")
			r := newRig(t, func(c *bootstrap.Config) {
				c.Allow = bootstrap.AllowList{ReleaseNamespace: release, Gateways: gateways{
					"shop/edge-coxswain": true, release + "/aether-controller": true,
				}}
			}, e)
			_, err := r.dial().Bootstrap(soon(t), request(t, e.Token))
			wantCode(t, err, tc.want)
			last := r.server.Audit()[0]
			if tc.want != codes.OK && (last.Reason != bootstrap.ReasonNotAllowed || last.PodUID != "uid-of-pod-1" ||
				last.Identity != "spiffe://cluster.local/ns/"+tc.namespace+"/sa/"+tc.account || last.Serial != "") {
				t.Errorf("audit: %+v", last)
			}
		})
	}
}

// owners says of each pod whether it is a proxy of its Gateway.
type owners map[string]error

func (o owners) Owned(_ context.Context, w svid.Workload) error { return o[w.Pod.Name] }

// A pod that runs under a dedicated Gateway's account is no proxy of it for that alone.
func TestAnotherPodUnderAGatewaysAccountGetsNothing(t *testing.T) {
	for pod, want := range map[string]codes.Code{"proxy": codes.OK, "other": codes.PermissionDenied, "unknowable": codes.Unavailable} {
		e := entry("shop", "edge-coxswain", pod)
		r := newRig(t, func(c *bootstrap.Config) {
			c.Allow = bootstrap.AllowList{
				ReleaseNamespace: release, Gateways: gateways{"shop/edge-coxswain": true},
				Owners: owners{"other": svid.ErrNotAllowed, "unknowable": errors.New("the API is away")},
			}
		}, e)
		_, err := r.dial().Bootstrap(soon(t), request(t, e.Token))
		wantCode(t, err, want)
	}
}

func TestNoGatewaysAtAll(t *testing.T) {
	l := bootstrap.AllowList{ReleaseNamespace: release}
	if err := l.Allow(t.Context(), svid.Workload{Namespace: "shop", ServiceAccount: "edge-coxswain"}); err == nil {
		t.Error("allowed")
	}
}

func TestRequestsThatAreNone(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	client := r.dial()
	t.Setenv("GODEBUG", "rsa1024min=0") // the adversary's library does not refuse weak keys
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	good := request(t, e.Token).GetCsrDer()
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, tc := range map[string]struct {
		csr  []byte
		want bootstrap.Reason
	}{
		"nothing":                      {nil, bootstrap.ReasonMalformedCSR},
		"garbage":                      {[]byte("garbage"), bootstrap.ReasonMalformedCSR},
		"a request that is cut":        {good[:40], bootstrap.ReasonMalformedCSR},
		"a signature that is not good": {flipped, bootstrap.ReasonMalformedCSR},
		"a certificate":                {r.ca.Roots().DER()[0], bootstrap.ReasonMalformedCSR},
		"RSA of 1024 bits":             {newCSR(t, &x509.CertificateRequest{}, weak), bootstrap.ReasonWeakKey},
		"P-224":                        {newCSR(t, &x509.CertificateRequest{}, newKey(t, elliptic.P224())), bootstrap.ReasonWeakKey},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Bootstrap(soon(t), &discoveryv1.BootstrapRequest{SaToken: e.Token.Reveal(), CsrDer: tc.csr})
			wantCode(t, err, codes.InvalidArgument)
			if audit := r.server.Audit(); audit[len(audit)-1].Reason != tc.want {
				t.Errorf("audit: %+v, want %s", audit[len(audit)-1], tc.want)
			}
		})
	}
}

func TestAMessageOverTheLimit(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	client := r.dial()
	req := request(t, e.Token)
	req.CsrDer = append(req.CsrDer, make([]byte, 64<<10)...)
	_, err := client.Bootstrap(soon(t), req)
	wantCode(t, err, codes.ResourceExhausted)
	await(t, "the refusal in the audit", func() bool { return len(r.server.Audit()) == 1 })
	if got := r.server.Audit()[0]; got.Reason != bootstrap.ReasonTooLarge || got.Addr == "" {
		t.Errorf("audit: %+v", got)
	}
	if _, err := client.Bootstrap(soon(t), request(t, e.Token)); err != nil {
		t.Errorf("the next request: %v", err)
	}
}

// raw sends bytes as they are in place of a message.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (raw) Unmarshal(_ []byte, _ any) error { return nil }
func (raw) Name() string                    { return "proto" }

func TestAMessageThatIsNoMessage(t *testing.T) {
	r := newRig(t, nil)
	conn := r.conn(clientTLS(t, r.ca))
	msg := bytes.Repeat([]byte{0xff}, 100)
	err := conn.Invoke(soon(t), discoveryv1.Discovery_Bootstrap_FullMethodName, &msg, &msg, grpc.ForceCodec(raw{}))
	wantCode(t, err, codes.Internal)
	await(t, "the refusal in the audit", func() bool { return len(r.server.Audit()) == 1 })
	if got := r.server.Audit()[0]; got.Reason != bootstrap.ReasonMalformed {
		t.Errorf("audit: %+v", got)
	}
}

func TestOtherRPCsDoNotExistHere(t *testing.T) {
	r := newRig(t, nil)
	conn := r.conn(clientTLS(t, r.ca))
	stream, err := discoveryv1.NewDiscoveryClient(conn).Stream(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	wantCode(t, err, codes.Unimplemented)
	for _, method := range []string{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.health.v1.Health/Check", "/coxswain.discovery.v1.Discovery/Roster"} {
		wantCode(t, conn.Invoke(soon(t), method, &discoveryv1.BootstrapRequest{}, &discoveryv1.BootstrapResponse{}), codes.Unimplemented)
	}
}

func from(ip string) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		return d.DialContext(ctx, "tcp", addr)
	})
}

func TestOneSourceOverItsRateDoesNotStopAnother(t *testing.T) {
	e := proxy()
	r := newRig(t, func(c *bootstrap.Config) {
		c.Limits = bootstrap.Limits{SourceRate: 0.001, SourceBurst: 3, GlobalRate: 1000, GlobalBurst: 1000}
		c.Attester = reviewer{c.Attester}
	}, e)
	greedy, other := r.dial(from("127.0.0.2")), r.dial(from("127.0.0.3"))
	bad := attest.NewToken()
	var err error
	for range 20 {
		_, err = greedy.Bootstrap(soon(t), request(t, bad))
	}
	wantCode(t, err, codes.ResourceExhausted)
	var info *errdetails.RetryInfo
	for _, d := range status.Convert(err).Details() {
		info, _ = d.(*errdetails.RetryInfo)
	}
	if d := info.GetRetryDelay().AsDuration(); d <= 0 || d > 20*time.Minute {
		t.Errorf("retry after %s", d)
	}
	// Neither a good token nor a new connection helps; another source is not touched.
	_, err = greedy.Bootstrap(soon(t), request(t, e.Token))
	wantCode(t, err, codes.ResourceExhausted)
	_, err = r.dial(from("127.0.0.2")).Bootstrap(soon(t), request(t, e.Token))
	wantCode(t, err, codes.ResourceExhausted)
	if _, err := other.Bootstrap(soon(t), request(t, e.Token)); err != nil {
		t.Errorf("another source: %v", err)
	}
	want := map[string]float64{"refused Unauthenticated": 3, "refused RateLimited": 19, "issued ": 1}
	if diff := cmp.Diff(want, r.counts()); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(r.log.String(), "RateLimited"); n != 1 {
		t.Errorf("a flood of one source made %d lines", n)
	}
}

// reviewer attests as one does that has to ask for each token: it recognizes none.
type reviewer struct{ bootstrap.Attester }

// On one machine every caller is 127.0.0.1.
func TestAStrangerAtTheSameAddressUsesUpNothingOfWhoIsKnown(t *testing.T) {
	a, b := proxy(), entry(release, spiffeid.SharedProxyAccount, "proxy-2")
	r := newRig(t, func(c *bootstrap.Config) {
		c.Limits = bootstrap.Limits{SourceRate: 0.001, SourceBurst: 3, GlobalRate: 0.001, GlobalBurst: 4}
	}, a, b)
	client := r.dial()
	for i := range 20 {
		_, err := client.Bootstrap(soon(t), request(t, attest.NewToken()))
		want := codes.Unauthenticated
		if i >= 3 {
			want = codes.ResourceExhausted // whatever token it makes up
		}
		wantCode(t, err, want)
	}
	for _, e := range []attest.Entry{a, b} {
		for i := range 5 {
			_, err := client.Bootstrap(soon(t), request(t, e.Token))
			want := codes.OK
			if i >= 3 {
				want = codes.ResourceExhausted // its own limit
			}
			wantCode(t, err, want)
		}
	}
}

func TestRateOfAll(t *testing.T) {
	e := proxy()
	r := newRig(t, func(c *bootstrap.Config) {
		c.Limits = bootstrap.Limits{GlobalRate: 0.001, GlobalBurst: 2}
		c.Attester = reviewer{c.Attester}
	}, e)
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.ResourceExhausted} {
		_, err := r.dial(from(fmt.Sprintf("127.0.1.%d", i+1))).Bootstrap(soon(t), request(t, e.Token))
		wantCode(t, err, want)
	}
}

func TestAnAuthorityThatCannotSign(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	idle, err := ca.New(ca.Config{Store: ca.FileStore{Dir: t.TempDir()}, TrustDomain: domain(t)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := bootstrap.New(bootstrap.Config{
		Attester: attest.NewTokenFile(r.tokens), CA: idle, TrustDomain: domain(t),
		Allow: bootstrap.AllowList{ReleaseNamespace: release},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Bootstrap(t.Context(), request(t, e.Token))
	wantCode(t, err, codes.Unavailable)
	if got := s.Audit()[0]; got.Result != bootstrap.Failed || got.Reason != bootstrap.ReasonCAUnusable {
		t.Errorf("audit: %+v", got)
	}
	_, err = s.Bootstrap(t.Context(), request(t, attest.NewToken()))
	wantCode(t, err, codes.Unauthenticated)
}

// rejections collects what is told of.
type rejections struct{ told []string }

func (r *rejections) BootstrapRejected(principal string, e bootstrap.Entry) {
	r.told = append(r.told, fmt.Sprintf("%s %s %d", principal, e.Reason, e.Count))
}

func TestNoSecretReachesLogAuditOrEvents(t *testing.T) {
	good, denied := proxy(), entry("shop", "default", "p")
	unknown := attest.NewToken()
	events := &rejections{}
	r := newRig(t, func(c *bootstrap.Config) { c.Events = events }, good, denied)
	client := r.dial()
	var secrets []string
	call := func(token svid.Token, change func(*discoveryv1.BootstrapRequest), want codes.Code) {
		req := request(t, token)
		if change != nil {
			change(req)
		}
		_, err := client.Bootstrap(soon(t), req)
		wantCode(t, err, want)
		if n := len(req.GetCsrDer()); n > 20 { // its end: the signature, which no leaf repeats
			secrets = append(secrets, string(req.GetCsrDer()[n-16:]))
		}
	}
	call(good.Token, nil, codes.OK)
	call(good.Token, func(r *discoveryv1.BootstrapRequest) { r.CsrDer = []byte("not-a-request-at-all-but-text") }, codes.InvalidArgument)
	call(good.Token, func(r *discoveryv1.BootstrapRequest) { r.CsrDer = append(r.CsrDer, 1) }, codes.InvalidArgument)
	call(denied.Token, nil, codes.PermissionDenied)
	call(unknown, nil, codes.Unauthenticated)
	call(good.Token, func(r *discoveryv1.BootstrapRequest) { r.CsrDer = append(r.CsrDer, make([]byte, 64<<10)...) }, codes.ResourceExhausted)
	await(t, "all in the audit", func() bool { return len(r.server.Audit()) == 6 })
	r.stop()

	audit, err := json.Marshal(r.server.Audit())
	if err != nil {
		t.Fatal(err)
	}
	all := r.log.String() + string(audit) + strings.Join(events.told, "\n")
	for _, e := range []svid.Token{good.Token, denied.Token, unknown} {
		secrets = append(secrets, e.Reveal(), e.Reveal()[:12])
	}
	for _, s := range secrets {
		for _, form := range []string{s, hex.EncodeToString([]byte(s)), base64.StdEncoding.EncodeToString([]byte(s)), fmt.Sprintf("%v", []byte(s))} {
			if strings.Contains(all, form) {
				t.Errorf("%q is in what was written", form)
			}
		}
	}
	var lines []string
	for line := range strings.Lines(r.log.String()) {
		var l struct{ Level, Msg, Identity, Reason string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.TrimSpace(l.Level+" "+l.Msg+" "+l.Identity+" "+l.Reason))
	}
	const id = "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy"
	want := []string{
		"INFO SVID issued " + id,
		"WARN bootstrap refused " + id + " MalformedCSR",
		"WARN bootstrap refused " + id + " MalformedCSR",
		"WARN bootstrap refused spiffe://cluster.local/ns/shop/sa/default NotAllowed",
		"WARN bootstrap refused  Unauthenticated",
		"WARN bootstrap refused  TooLarge",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("one line for each: %s", diff)
	}
	wantEvents := []string{
		id + " MalformedCSR 1", // of two within a minute
		"spiffe://cluster.local/ns/shop/sa/default NotAllowed 1",
		"unknown (127.0.0.1) Unauthenticated 1",
		"unknown (127.0.0.1) TooLarge 1",
	}
	if diff := cmp.Diff(wantEvents, events.told); diff != "" {
		t.Errorf("events: %s", diff)
	}
}

func TestNewRefuses(t *testing.T) {
	if _, err := bootstrap.New(bootstrap.Config{Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("a server of nothing was made")
	}
}

// Whatever a proved workload sends as its request: a refusal, or an SVID for exactly
// what it is.
func FuzzRequest(f *testing.F) {
	e := proxy()
	r := newRig(f, func(c *bootstrap.Config) {
		c.Limits = bootstrap.Limits{SourceRate: 1e9, SourceBurst: 1 << 30, GlobalRate: 1e9, GlobalBurst: 1 << 30}
		c.Log = nil
	}, e)
	want, err := e.Identity.ID(domain(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(request(f, e.Token).GetCsrDer())
	f.Add(newCSR(f, &x509.CertificateRequest{URIs: []*url.URL{controller(f).URL()}, Subject: pkix.Name{CommonName: "x"}}, newKey(f, elliptic.P384())))
	f.Fuzz(func(t *testing.T, csr []byte) {
		resp, err := r.server.Bootstrap(t.Context(), &discoveryv1.BootstrapRequest{SaToken: e.Token.Reveal(), CsrDer: csr})
		if err != nil {
			wantCode(t, err, codes.InvalidArgument)
			return
		}
		if leaf, peer := verify(t, resp); peer.ID != want || peer.Pod != e.Identity.Pod || len(leaf.Subject.Names) != 0 {
			t.Errorf("issued to %+v, subject %s", peer, leaf.Subject)
		}
	})
}
