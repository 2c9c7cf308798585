package hcm

import headermutationv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"

// trailerFilter is the name of the filter that keeps from backends what a client may say
// in headers only, or not at all.
const trailerFilter = "aether.trailers"

// Framing is the headers that say where a message ends or what becomes of its connection:
// changed, they would let one request smuggle another past the proxy.
func Framing() []string {
	return []string{"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
}

// trailers removes from a request's trailers what frames it, routes it or tells of its way
// (RFC 9110, 6.5.1): some backends put trailers among the headers, where they would stand
// for what the proxy has removed or written. Others pass.
func (c Config) trailers() *headermutationv3.HeaderMutation {
	list := append(forged(), removePrefix(envoyHeaders), remove(ScopeHeader), remove("host"))
	for _, name := range Framing() {
		list = append(list, remove(name))
	}
	m := &headermutationv3.Mutations{RequestTrailersMutations: list}
	if c.Collector {
		m.RequestMutations = showTrace()
	}
	return &headermutationv3.HeaderMutation{Mutations: m}
}
