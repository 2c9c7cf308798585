package otlpflag

import (
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// ForProxy are a proxy's flags that go with a controller's: what that exports, its proxy does,
// too. Flags that are not of this package are left out, and so are those that cannot be read,
// of which the controller says what is wrong.
func ForProxy(controller []string) []string {
	var f Flags
	var configMap string
	known := pflag.NewFlagSet("", pflag.ContinueOnError)
	known.SetOutput(io.Discard)
	f.Register(known, Help{})
	known.StringVar(&configMap, ControllerAuthorities, "", "")
	var out []string
	for _, arg := range controller {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if known.Lookup(name) == nil || known.Parse([]string{arg}) != nil {
			continue
		}
		if name != ControllerAuthorities {
			out = append(out, arg)
		}
	}
	if configMap != "" {
		out = append(out, "--"+ProxyAuthorities)
	}
	return out
}

// The flags of each program that say where the collector's authorities are.
const (
	ControllerAuthorities = "otlp-ca-config-map"
	ProxyAuthorities      = "otlp-ca-discovered"
)
