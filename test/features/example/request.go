package example

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Request is something to send, and what must come of it.
type Request struct {
	Name     string            `json:"name"`
	Send     string            `json:"send"`               // "METHOD URL"; the host is the Host header and the SNI
	Port     int               `json:"port,omitempty"`     // the listener's; default 8080, and 8443 for https
	Protocol string            `json:"protocol,omitempty"` // HTTP/1.0, HTTP/1.1 (default), HTTP/2; in plain text that is h2c
	Headers  map[string]Values `json:"headers,omitempty"`
	Body     string            `json:"body,omitempty"`
	Trailers map[string]string `json:"trailers,omitempty"` // HTTP/2 only
	Socket   []string          `json:"socket,omitempty"`   // ask for a WebSocket, send these and expect each back
	SNI      string            `json:"sni,omitempty"`      // "none": send none. Default: the URL's host
	Client   string            `json:"client,omitempty"`   // whose certificate to show
	// Without leaves out these objects (Kind/namespace/name) of the manifests, as if
	// they had been deleted.
	Without []string `json:"without,omitempty"`
	Times   int      `json:"times,omitempty"` // default 1
	Expect  Expect   `json:"expect"`
}

// Expect is what must come of a request. All that is given must hold, for every answer
// but for Shares and Copies, which count. A pattern is a text that must be equal, or, in
// the form /^...$/, a regular expression that must match.
type Expect struct {
	Status   int                `json:"status,omitempty"`   // default 200; 101 with a socket
	Backend  string             `json:"backend,omitempty"`  // that answered; "none": no backend saw it
	Headers  map[string]Pattern `json:"headers,omitempty"`  // of the answer, several joined by ", "; null: it has none
	Body     *Pattern           `json:"body,omitempty"`     // of the answer
	Trailers map[string]Pattern `json:"trailers,omitempty"` // of the answer
	Protocol string             `json:"protocol,omitempty"` // of the answer
	Seen     *Seen              `json:"seen,omitempty"`     // by the backend that answered
	Copies   map[string]Range   `json:"copies,omitempty"`   // requests that reached a backend, mirrored or repeated ones; all times together
	Shares   map[string]Range   `json:"shares,omitempty"`   // answers by backend, or by status where no backend answered; the sum is Times
	// Certificate is the first name in the certificate that the listener shows.
	Certificate string `json:"certificate,omitempty"`
	// Fails is "connect" or "handshake", or "request" for a connection that is closed
	// without an answer.
	Fails string `json:"fails,omitempty"`
	// AccessLog is keys of the request's line in the access log.
	AccessLog map[string]Pattern `json:"accessLog,omitempty"`
}

// Seen is what a backend must have seen.
type Seen struct {
	Method     *Pattern           `json:"method,omitempty"`
	Host       *Pattern           `json:"host,omitempty"`
	Path       *Pattern           `json:"path,omitempty"` // with the query
	Protocol   *Pattern           `json:"protocol,omitempty"`
	Headers    map[string]Pattern `json:"headers,omitempty"` // null: it has none
	Body       *Pattern           `json:"body,omitempty"`
	Trailers   map[string]Pattern `json:"trailers,omitempty"`
	TLS        *bool              `json:"tls,omitempty"`
	ServerName *Pattern           `json:"serverName,omitempty"`
	Client     *Pattern           `json:"client,omitempty"` // common name
}

// Values is one text or a list of them.
type Values []string

// UnmarshalJSON reads either.
func (v *Values) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*v = Values{one}
		return nil
	}
	var many []string
	err := json.Unmarshal(b, &many)
	*v = many
	return err
}

// Pattern is a text, a regular expression, or the absence of a value.
type Pattern struct {
	text   string
	re     *regexp.Regexp
	absent bool
}

// UnmarshalJSON reads a text or null.
func (p *Pattern) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		p.absent = true
		return nil
	}
	if err := json.Unmarshal(b, &p.text); err != nil {
		return err
	}
	if strings.HasPrefix(p.text, "/^") && strings.HasSuffix(p.text, "$/") {
		var err error
		if p.re, err = regexp.Compile(p.text[1 : len(p.text)-1]); err != nil {
			return fmt.Errorf("pattern %s: %w", p.text, err)
		}
	}
	return nil
}

// String is the pattern as it is written.
func (p Pattern) String() string {
	if p.absent {
		return "nothing"
	}
	return strconv.Quote(p.text)
}

// Match reports whether a value, or the absence of one, is as wanted.
func (p Pattern) Match(value string, present bool) bool {
	switch {
	case p.absent:
		return !present
	case p.re != nil:
		return present && p.re.MatchString(value)
	}
	return present && value == p.text
}

// Range is a number "3" or two "20-40", both included.
type Range struct{ Low, High int }

// UnmarshalJSON reads a number or a text of that form.
func (r *Range) UnmarshalJSON(b []byte) error {
	low, high, two := strings.Cut(strings.Trim(string(b), `"`), "-")
	if !two {
		high = low
	}
	var errs [2]error
	r.Low, errs[0] = strconv.Atoi(low)
	r.High, errs[1] = strconv.Atoi(high)
	if errs[0] != nil || errs[1] != nil || r.Low > r.High || r.Low < 0 {
		return fmt.Errorf("range %s: want a number, or two as in 20-40", b)
	}
	return nil
}

// Has reports whether n is in the range.
func (r Range) Has(n int) bool { return r.Low <= n && n <= r.High }

func (r Range) String() string {
	if r.Low == r.High {
		return strconv.Itoa(r.Low)
	}
	return fmt.Sprintf("%d-%d", r.Low, r.High)
}

// What an Expect may name.
const (
	FailsConnect   = "connect"
	FailsHandshake = "handshake"
	FailsRequest   = "request"
	None           = "none"
	Self           = "self" // in the place of an authority
)

// The protocols of a Request.
const (
	HTTP10 = "HTTP/1.0"
	HTTP11 = "HTTP/1.1"
	HTTP2  = "HTTP/2"
)

// check fills in defaults and finds what cannot be meant.
func (r *Request) check(d *Document) error {
	_, scheme, authority, path := r.Target()
	if scheme != "http" && scheme != "https" || authority == "" || strings.Contains(path, " ") {
		return fmt.Errorf("send: want \"METHOD http[s]://host/path\", got %q", r.Send)
	}
	switch {
	case r.Port != 0:
	case scheme == "https":
		r.Port = 8443
	default:
		r.Port = 8080
	}
	r.Times = max(r.Times, 1)
	if r.Protocol == "" {
		r.Protocol = HTTP11
	}
	e := &r.Expect
	if e.Status == 0 && e.Fails == "" && len(e.Shares) == 0 {
		if e.Status = 200; r.Socket != nil {
			e.Status = 101
		}
	}
	switch {
	case !slices.Contains([]string{HTTP10, HTTP11, HTTP2}, r.Protocol):
		return fmt.Errorf("protocol %q is unknown", r.Protocol)
	case r.Socket != nil && r.Protocol != HTTP11:
		return fmt.Errorf("a socket is asked for with HTTP/1.1")
	case len(r.Trailers) > 0 && r.Protocol != HTTP2:
		return fmt.Errorf("trailers are sent with HTTP/2")
	case r.Client != "" && !slices.ContainsFunc(d.Clients, func(c Client) bool { return c.Name == r.Client }):
		return fmt.Errorf("no client %q", r.Client)
	case !slices.Contains([]string{"", FailsConnect, FailsHandshake, FailsRequest}, e.Fails):
		return fmt.Errorf("fails: %q is unknown", e.Fails)
	case e.Seen != nil && (e.Backend == None || e.Fails != ""):
		return fmt.Errorf("no backend is expected to see it")
	}
	return nil
}

// Target is the method and the URL's scheme, authority and path with query, as written.
func (r *Request) Target() (method, scheme, authority, path string) {
	method, address, _ := strings.Cut(r.Send, " ")
	scheme, rest, _ := strings.Cut(address, "://")
	authority, path = rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	return method, scheme, authority, path
}
