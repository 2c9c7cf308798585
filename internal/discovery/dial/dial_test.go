package dial_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/test/controller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseEndpoint(t *testing.T) {
	cases := map[string]struct {
		in, want string
	}{
		"a name":                 {"https://controller.aether-system.svc:50051", "controller.aether-system.svc:50051"},
		"an address":             {"https://127.0.0.1:1", "127.0.0.1:1"},
		"an IPv6 address":        {"https://[::1]:50051", "[::1]:50051"},
		"a slash at the end":     {"https://h:1/", "h:1"},
		"no scheme":              {"h:1", ""},
		"in the clear":           {"http://h:1", ""},
		"no port":                {"https://h", ""},
		"port zero":              {"https://h:0", ""},
		"a port that is too big": {"https://h:65536", ""},
		"no host":                {"https://:1", ""},
		"a path":                 {"https://h:1/x", ""},
		"a query":                {"https://h:1?x", ""},
		"a user":                 {"https://u:p@h:1", ""},
		"nothing":                {"", ""},
		"garbage":                {"https://h:1\x00", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := dial.ParseEndpoint(tc.in)
			if (err == nil) != (tc.want != "") || got.String() != tc.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestNewRefusesLessThanTLS13(t *testing.T) {
	endpoint, err := dial.ParseEndpoint("https://h:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []*tls.Config{nil, {}, {MinVersion: tls.VersionTLS12}} {
		if conn, err := dial.New(endpoint, config, nil); err == nil {
			_ = conn.Close()
			t.Errorf("%+v was accepted", config)
		}
	}
}

// In TLS 1.3 a server refuses a client's certificate after the client thinks that the
// handshake is over.
func TestExplainTellsARefusedCertificate(t *testing.T) {
	c := controller.New(t)
	endpoint, err := dial.ParseEndpoint(c.Streams.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial.New(endpoint, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	stream, err := discoveryv1.NewDiscoveryClient(conn).Stream(t.Context())
	if err == nil {
		_, err = stream.Recv()
	}
	if err = conn.Explain(err); !errors.Is(err, dial.ErrRefused) || status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want ErrRefused and UNAVAILABLE", err)
	}
}

func TestKindIsStable(t *testing.T) {
	cases := map[string]struct {
		err  error
		want string
	}{
		"a cause":       {fmt.Errorf("x: %w: dial 127.0.0.1:4711", dial.ErrUnreachable), dial.ErrUnreachable.Error()},
		"a status":      {fmt.Errorf("x: %w", status.Error(codes.Unavailable, "read 127.0.0.1:4711: reset")), "Unavailable"},
		"anything else": {errors.New("open /x: no such file"), "open /x: no such file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := dial.Kind(tc.err); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
