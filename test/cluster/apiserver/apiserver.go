// Package apiserver runs a real etcd and a real Kubernetes API server for a test, on
// loopback: no node, no controller, no scheduler. The programs must have been built
// (make cluster-programs); they end with the test, and if the test is killed.
package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/controlplane"
	"aether.io/aether/test/cluster/pki"
	"aether.io/aether/test/cluster/supervise"
)

// deadline is for the server to become ready. On a busy machine it takes some ten seconds.
const deadline = 3 * time.Minute

// Names of the programs, for the methods of Group.
const (
	Etcd      = "etcd"
	APIServer = "kube-apiserver"
)

// Server is an API server with its etcd. The Group stops, kills, halts and starts the two.
type Server struct {
	*supervise.Group
	Config     *rest.Config // the administrator's
	Kubeconfig string       // the file with the same
	Dir        string       // with all that it keeps, the audit log and etcd's data among it
	AuditLog   string       // of all writes, but of Leases and Events, one JSON object a line

	program   string
	url       string
	authority *pki.Authority
	release   func() // the ports
}

// Start starts the two for the test and returns when they are ready. It fails the test if
// they are not built or do not get ready.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func start(t testing.TB) (*Server, error) {
	t.Helper()
	s, err := Open(t.TempDir())
	if err != nil {
		return nil, err
	}
	t.Cleanup(s.Close) // before the folder goes
	return s, nil
}

// Open starts the two with all their files in a folder. They need not be ready when it returns.
func Open(dir string) (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	authority, err := pki.Open(dir + "/pki")
	if err != nil {
		return nil, err
	}
	ports, release, err := reserve(2)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, AuditLog: dir + "/audit.log", program: program, authority: authority, release: release}
	if err := s.start(ports); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) start(ports []uint16) error {
	plane, err := controlplane.New(controlplane.Config{
		Program: s.program, Dir: s.Dir, Authority: s.authority,
		Address: netip.MustParseAddr("127.0.0.1"), Port: ports[0], EtcdPort: ports[1], SharePorts: true,
		Services: netip.MustParsePrefix("198.19.128.0/18"),
	})
	if err != nil {
		return err
	}
	if s.Config, err = clientcmd.BuildConfigFromFlags("", plane.Admin); err != nil {
		return err
	}
	s.Config.QPS = -1 // a test is not to be slowed down
	s.Kubeconfig, s.url = plane.Admin, plane.Server
	s.Group = supervise.New(s.Dir, slog.New(slog.DiscardHandler), plane.Etcd, plane.APIServer)
	return s.StartAll()
}

// Close ends the two. The folder stays.
func (s *Server) Close() {
	if s.Group != nil {
		s.StopAll()
	}
	s.release()
}

// As makes a kubeconfig of an administrator who goes by a name of their own, so that the
// audit log tells what they did from what others did.
func (s *Server) As(name string) (file string, err error) {
	file = s.Dir + "/conf/" + name + ".kubeconfig"
	return file, s.authority.Kubeconfig(file, name, s.url, pki.Subject{CommonName: name, Organizations: []string{"system:masters"}})
}

func find() (string, error) {
	root, err := build.Root(".")
	if err != nil {
		return "", err
	}
	cache, err := build.Cache()
	if err != nil {
		return "", err
	}
	return build.Kubernetes(root).Find(cache)
}

// Ready returns when the server says that it is. If it does not in time, the error has
// the ends of the logs.
func (s *Server) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx, client, s.Config.Host+"/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not get ready: %w%s", err, s.logs())
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

// logs are the last lines of what the programs wrote.
func (s *Server) logs() string {
	var out strings.Builder
	for _, name := range []string{Etcd, APIServer} {
		text, err := os.ReadFile(s.Log(name))
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&out, "\n--- %s (%v)\n%s", name, err, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return out.String()
}

// Kubectl runs kubectl as the administrator with the input and returns what it printed;
// the error has what it complained of.
func (s *Server) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.program, append([]string{"kubectl", "--kubeconfig", s.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// reserve finds free ports of loopback and keeps them until release: sockets are bound to
// them that do not listen, and that those who do may share the port with (SO_REUSEPORT).
func reserve(n int) (ports []uint16, release func(), err error) {
	var held []int
	release = func() {
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}
	for range n {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			held = append(held, fd)
			err = errors.Join(
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1),
				unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte(net.IPv4(127, 0, 0, 1).To4())}),
			)
		}
		var bound syscall.Sockaddr
		if err == nil {
			bound, err = syscall.Getsockname(fd)
		}
		at, ok := bound.(*syscall.SockaddrInet4)
		if err != nil || !ok {
			release()
			return nil, nil, fmt.Errorf("reserve a port: %w", err)
		}
		ports = append(ports, uint16(at.Port))
	}
	return ports, release, nil
}
