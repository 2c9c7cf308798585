package fleet

import "time"

// Member is one proxy of a scope, and how it stands to what was published for the scope up
// to a position that was asked about.
type Member struct {
	Name      string // of the pod
	UID       string // of the pod; empty: not known
	Connected bool
	Reached   uint64    // position up to which it has answered, at most the one asked about; 0: it never has
	Lag       string    // why it does not run all up to there, one of the reasons of laggards; empty: it does
	Since     time.Time // of Lag; zero: it is about to be sent something
	Detail    string    // of LagRejected: what its Envoy says
}

// Behind reports whether it does not run what was published up to a position: it has not
// answered for it, or what was asked about is refused or still warming.
func (m Member) Behind(position uint64) bool {
	return m.Reached < position || m.Lag == LagRejected || m.Lag == LagPending
}

// Pod is a pod that runs a proxy.
type Pod struct {
	Name    string
	UID     string
	Since   time.Time // it runs since
	Leaving bool      // it is being deleted
}
