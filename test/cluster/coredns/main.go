// Command coredns is the test cluster's name server: CoreDNS with the plugins that the
// cluster's Corefile names, and that of the Gateway API's conformance suite, which has it for
// a backend, and no others. It is a module of its own, as is the rest of the cluster that is
// not ours.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/whoami"
)

func main() {
	// The order in which a query passes through them, that of CoreDNS' plugin.cfg.
	dnsserver.Directives = []string{"health", "ready", "log", "errors", "loadbalance", "cache", "kubernetes", "forward", "whoami"}
	coremain.Run()
}
