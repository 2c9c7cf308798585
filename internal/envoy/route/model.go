// Package route makes Envoy's routes out of one match of one rule: what is matched, what
// is done to requests and responses, where they go. It knows neither the order of
// matches nor scopes. A Route enters; the Envoy routes that serve it together leave, in
// the order in which they must stand.
package route

import "time"

// Host is the virtual host that a route is in, as far as routes depend on it.
type Host struct {
	Name   string // exact, "*.x" or "*"; lower case
	Port   uint32 // of the listener, as the Gateway says it; 0: not known, taken for the scheme's
	Secure bool   // the listener's protocol is HTTPS
}

// Route is one match of one rule.
type Route struct {
	Name    string // <ns>/<route>/<rule>/<match>, unique in its virtual host
	Path    PathMatch
	Headers []HeaderMatch
	Method  string // empty: any
	Query   []QueryMatch
	Filters
	Timeout  time.Duration // from the end of the request to the end of the answer; 0: none
	Backends []Backend     // empty: answered with 500, unless it is redirected
}

// PathMatch says which paths match. The zero PathMatch is every path.
type PathMatch struct {
	Kind  PathKind
	Value string
}

// PathKind is how a path is compared.
type PathKind uint8

// The ways to compare a path.
const (
	PathPrefix PathKind = iota // segment-wise, trailing slash ignored
	PathExact
	PathRegex // RE2, the whole path
)

// HeaderMatch is one header condition.
type HeaderMatch struct {
	Name  string // lower case
	Value string
	Regex bool // RE2, the whole value
}

// QueryMatch is one query parameter condition; values are compared as sent, not decoded.
type QueryMatch struct {
	Name  string
	Value string
	Regex bool
}

// Backend is one share of a route's requests.
type Backend struct {
	Cluster string // empty: an invalid backend, whose share is answered with 500
	Weight  uint32 // a route whose weights are all 0 is answered with 500
	Filters        // for this share; they come after the route's and win over them
}

// Filters is what is done to requests and responses. The zero Filters does nothing.
type Filters struct {
	Request  HeaderChange
	Response HeaderChange // of every response, the proxy's own too
	Redirect *Redirect    // then there is neither Rewrite nor Mirrors, and a route has no Backends
	Rewrite  Rewrite
	Mirrors  []Mirror
	CORS     *CORS
}

// HeaderChange changes headers. A name, in lower case, is in one of the lists, once.
type HeaderChange struct {
	Set    []Header
	Add    []Header // beside those that are there
	Remove []string
}

// Header is a header's name and value.
type Header struct{ Name, Value string }

// Redirect answers with another location.
type Redirect struct {
	Scheme string // http or https; empty: the request's
	Host   string // empty: the request's
	Port   uint32 // 0: the Scheme's; without one the listener's
	Path   PathChange
	Status uint32 // 301, 302, 303, 307 or 308
}

// Rewrite changes a request's URL on its way to the backend.
type Rewrite struct {
	Host string // may have a port; empty: the request's
	Path PathChange
}

// PathChange changes a path and leaves the query. The zero PathChange changes nothing.
type PathChange struct {
	Kind  ChangeKind
	Value string // a path; empty is "/"
}

// ChangeKind is how much of a path is replaced.
type ChangeKind uint8

// The ways to change a path.
const (
	KeepPath      ChangeKind = iota
	ReplacePath              // all of it
	ReplacePrefix            // what a PathPrefix matched, segment-wise
)

// Mirror sends copies of requests to a cluster and drops the responses.
type Mirror struct {
	Cluster    string
	PerMillion uint32 // of requests, 1 to 1000000
}

// Million is the PerMillion of every request.
const Million = 1_000_000

// CORS answers preflight requests and marks responses for the origins that may read them.
type CORS struct {
	Origins     []string // "*" alone, or <scheme>://<host>[:<port>] with a host that may be or begin with a "*" label
	Credentials bool
	Methods     []string // "*" alone is any
	Headers     []string // "*" alone is any
	Expose      []string // "*" alone is any
	MaxAge      uint32   // seconds; 0: the client is told nothing
}
