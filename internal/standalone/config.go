// Package standalone runs Aether on one machine from a directory of manifests: it starts
// the real controller, proxy and Envoy as processes of their own, introduces them to each
// other (control ports, a token, a trust bundle's place), keeps them running, and says to its
// narrator what it does. It routes nothing and decides nothing about configuration, and what
// a person reads is the narrator's.
package standalone

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"aether.io/aether/internal/statedir"
)

// The defaults of a Config.
const (
	DefaultBind  = "127.0.0.1"
	DefaultDrain = 10 * time.Second
)

// Config is what an Instance is made from.
type Config struct {
	Dir        string        // of manifests; must exist
	State      statedir.Dir  // where everything is kept
	Bind       string        // IP that listeners bind
	PortOffset int           // added to each listener's port
	Envoy      string        // path of the Envoy binary
	Controller string        // path of aether-controller
	Proxy      string        // path of aether-proxy
	Extra      []string      // flags handed on to the controller; the proxy exports what it does
	Drain      time.Duration // how long requests may go on when stopping; 0: DefaultDrain, below it: not at all
	Debug      bool          // controller and proxy log what is of use only to a developer
	Out        io.Writer     // what a person sees
	JSON       bool          // one JSON object a line instead of prose
	Log        *slog.Logger
}

// Instance is one standalone Aether.
type Instance struct{ c Config }

// New checks c against the machine: what it names must be there.
func New(c Config) (*Instance, error) {
	if c.Bind == "" {
		c.Bind = DefaultBind
	}
	if c.Drain == 0 {
		c.Drain = DefaultDrain
	}
	c.Drain = max(c.Drain, 0)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Out == nil {
		return nil, errors.New("standalone needs an output")
	}
	if net.ParseIP(c.Bind) == nil {
		return nil, fmt.Errorf("--bind %q is not an IP address", c.Bind)
	}
	if c.PortOffset < 0 || c.PortOffset > 65534 {
		return nil, fmt.Errorf("--port-offset %d is not in 0..65534", c.PortOffset)
	}
	if info, err := os.Stat(c.Dir); err != nil {
		return nil, fmt.Errorf("manifest directory: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("manifest directory %s is not a directory", c.Dir)
	}
	abs, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("manifest directory: %w", err)
	}
	c.Dir = abs
	if err := c.State.Apart(c.Dir); err != nil {
		return nil, err
	}
	const beside = "; it belongs beside aetherctl, where \"make build\" puts it"
	for _, p := range []struct{ name, path, hint string }{
		{"envoy", c.Envoy, ""}, {"aether-controller", c.Controller, beside}, {"aether-proxy", c.Proxy, beside},
	} {
		if info, err := os.Stat(p.path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return nil, fmt.Errorf("%s: no executable at %q%s", p.name, p.path, p.hint)
		}
	}
	return &Instance{c: c}, nil
}
