package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
)

// protocol is what port-forwarding is called on the wire, in either carrier.
const protocol = portforward.PortForwardProtocolV1Name

// dial connects to a port of a pod's loopback.
func dial(ctx context.Context, config *rest.Config, pod types.NamespacedName, port uint16) (net.Conn, error) {
	current, old, err := newDialers(config, pod)
	if err != nil {
		return nil, err
	}
	type result struct {
		tunnel httpstream.Connection
		err    error
	}
	made := make(chan result, 1) // dialing knows no context: it is left to itself when ctx is done
	go func() {
		tunnel, err := either(current, old)
		made <- result{tunnel, err}
	}()
	select {
	case r := <-made:
		if r.err != nil {
			return nil, r.err
		}
		conn, err := open(r.tunnel, port)
		if err != nil {
			return nil, errors.Join(err, r.tunnel.Close())
		}
		return conn, nil
	case <-ctx.Done():
		go func() {
			if r := <-made; r.err == nil {
				_ = r.tunnel.Close()
			}
		}()
		return nil, fmt.Errorf("reach pod %s: %w", pod, ctx.Err())
	}
}

// either makes a tunnel over a WebSocket, or over SPDY where an API server, or what is in
// front of it, knows no better, or asks another right for it. What an API server said in so
// many words is what is told if neither can be made.
func either(current, old httpstream.Dialer) (httpstream.Connection, error) {
	tunnel, _, err := current.Dial(protocol)
	if !httpstream.IsUpgradeFailure(err) && !httpstream.IsHTTPSProxyError(err) {
		return tunnel, err
	}
	tunnel, _, again := old.Dial(protocol)
	if again == nil {
		return tunnel, nil
	}
	if upgrade, is := errors.AsType[*httpstream.UpgradeFailureError](err); is {
		if said, is := errors.AsType[*apierrors.StatusError](upgrade.Cause); is {
			return nil, said
		}
	}
	return nil, again
}

func newDialers(config *rest.Config, pod types.NamespacedName) (current, old httpstream.Dialer, err error) {
	core, err := coreclient.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	at := core.RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	own := rest.CopyConfig(config)
	own.Timeout = 0 // it would be that of the tunnel, too
	transport, upgrader, err := spdy.RoundTripperFor(own)
	if err != nil {
		return nil, nil, err
	}
	current, err = portforward.NewSPDYOverWebsocketDialerForStreaming(at, own)
	return current, spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, at), err
}

// open makes a connection to the port of a tunnel that has no other.
func open(tunnel httpstream.Connection, port uint16) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	complaints, err := tunnel.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open the tunnel's errors: %w", err)
	}
	_ = complaints.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := tunnel.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("open the tunnel's data: %w", err)
	}
	c := &conn{Stream: data, tunnel: tunnel, complaint: make(chan error, 1)}
	go c.listen(complaints)
	return c, nil
}

// conn is one connection through a tunnel of its own. It has no deadlines: who uses it
// closes it.
type conn struct {
	httpstream.Stream
	tunnel    httpstream.Connection
	complaint chan error // capacity 1: what the other side says is wrong, then closed
}

// maxComplaint bounds what is read of it.
const maxComplaint = 4096

// listen ends when the tunnel does.
func (c *conn) listen(complaints io.Reader) {
	defer close(c.complaint)
	if text, _ := io.ReadAll(io.LimitReader(complaints, maxComplaint)); len(text) > 0 {
		c.complaint <- fmt.Errorf("the pod's node says: %s", text)
		_ = c.tunnel.Close() // nothing will come
	}
}

// Read says, at the end, what the other side complained of, which may come after the end. It
// waits for that until the tunnel is closed at the latest.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if err == nil || n > 0 {
		return n, err
	}
	if complaint, told := <-c.complaint; told {
		return 0, complaint
	}
	return 0, err
}

// Close ends the tunnel.
func (c *conn) Close() error {
	_ = c.Reset() // what was not sent would hold up the end
	return c.tunnel.Close()
}

// address is both ends' of a connection that has none.
type address struct{}

func (address) Network() string { return "tunnel" }
func (address) String() string  { return "pod" }

func (c *conn) LocalAddr() net.Addr              { return address{} }
func (c *conn) RemoteAddr() net.Addr             { return address{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
