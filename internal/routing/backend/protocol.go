package backend

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"aether.io/aether/internal/envoy"
)

// speech is what an appProtocol says of a backend.
type speech struct {
	protocol envoy.Protocol
	secure   bool // only by TLS
}

// readProtocol understands the Kubernetes standard application protocols (GEP-1911), and
// the names that are widely used beside them, in any letter case. Without TLS, HTTP/2 is
// spoken with prior knowledge. WebSocket is an upgrade of HTTP/1.1, which needs no word.
func readProtocol(p *corev1.ServicePort) (speech, bool) {
	switch strings.ToLower(ptr.Deref(p.AppProtocol, "")) {
	case "", "http", "kubernetes.io/ws", "ws", "grpc-web":
		return speech{protocol: envoy.HTTP1}, true
	case "https", "kubernetes.io/wss", "wss":
		return speech{protocol: envoy.HTTP1, secure: true}, true
	case "kubernetes.io/h2c", "h2c", "http2", "grpc":
		return speech{protocol: envoy.HTTP2}, true
	}
	return speech{}, false
}
