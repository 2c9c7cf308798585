package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/routing"
)

func TestTheMemoryOfSharedProxiesIsAQuantity(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want int64
		why  string // empty: it is taken
	}{
		"the default":                    {nil, routing.DefaultSharedMemory, ""},
		"a quantity":                     {[]string{"--shared-proxy-memory=1Gi"}, 1 << 30, ""},
		"a number as charts render it":   {[]string{"--shared-proxy-memory=4.02653184e+08"}, 402653184, ""},
		"none at all is no bound":        {[]string{"--shared-proxy-memory=0"}, 0, ""},
		"what is no quantity is refused": {[]string{"--shared-proxy-memory=much"}, 0, `--shared-proxy-memory "much"`},
		"less than nothing is refused":   {[]string{"--shared-proxy-memory=-1Mi"}, 0, `--shared-proxy-memory "-1Mi"`},
	} {
		t.Run(name, func(t *testing.T) {
			var f flags
			cmd := &cobra.Command{}
			f.register(cmd)
			if err := cmd.ParseFlags(c.args); err != nil {
				t.Fatal(err)
			}
			switch err := f.check(); {
			case c.why == "" && err != nil:
				t.Error(err)
			case c.why == "" && f.sharedBytes != c.want:
				t.Errorf("%d bytes, want %d", f.sharedBytes, c.want)
			case c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)):
				t.Errorf("%v, want %s refused", err, c.why)
			}
		})
	}
}
