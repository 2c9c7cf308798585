package rig

import (
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Backend answers at an address of this machine that is not loopback: the API takes no
// endpoint there.
type Backend struct {
	IP   string
	Port int32
	srv  *http.Server
}

func startBackend() (*Backend, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.To4() == nil || !ip.IsGlobalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err != nil {
			return nil, err
		}
		b := &Backend{IP: ip.String(), Port: int32(l.Addr().(*net.TCPAddr).Port)}
		b.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "served")
		})}
		go func() { _ = b.srv.Serve(l) }() // ends with close
		return b, nil
	}
	return nil, errors.New("this machine has no IPv4 address but loopback's, where the API takes no endpoint")
}

func (b *Backend) close() { _ = b.srv.Close() }
