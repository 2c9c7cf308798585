// Package journal remembers the last notable moments of a process, and lets others
// follow them as they come: what a person watching would be told. It is not a log:
// it is bounded, it is in memory, and it holds no secrets.
package journal

import (
	"context"
	"sync"
	"time"
)

// Size is how many events are kept.
const Size = 512

// Kind is what an event is about.
type Kind string

// The kinds of events.
const (
	CAReady        Kind = "ca-ready"
	SVIDIssued     Kind = "svid-issued"
	EnvoyConnected Kind = "envoy-connected"
	SnapshotLive   Kind = "snapshot-live"
	State          Kind = "state"   // of a proxy
	Change         Kind = "change"  // of configuration, Detail is a changelog.Entry
	Problem        Kind = "problem" // with an input
	Unread         Kind = "unread"  // input that is none of ours
	Progress       Kind = "progress"
	Mended         Kind = "mended" // what was a Problem is none any more
)

// Event is one moment.
type Event struct {
	Seq     uint64    `json:"seq"` // from 1, without gaps, per process
	At      time.Time `json:"at"`
	Kind    Kind      `json:"kind"`
	Message string    `json:"message"`
	Detail  any       `json:"detail,omitempty"` // encodes as JSON; immutable
}

// Journal is a bounded list of events. The zero Journal is empty and ready for use.
type Journal struct {
	mu     sync.Mutex
	events []Event       // at most Size, oldest first
	last   uint64        // Seq of the newest
	grown  chan struct{} // closed and replaced when an event is added; nil: nobody waits
}

// Add appends an event; At and Kind are the caller's.
func (j *Journal) Add(at time.Time, kind Kind, message string, detail any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	j.events = append(j.events, Event{Seq: j.last, At: at, Kind: kind, Message: message, Detail: detail})
	if len(j.events) > Size {
		j.events = append([]Event(nil), j.events[len(j.events)-Size:]...)
	}
	if j.grown != nil {
		close(j.grown)
		j.grown = nil
	}
}

// Since returns the kept events after seq, oldest first.
func (j *Journal) Since(seq uint64) []Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.since(seq)
}

func (j *Journal) since(seq uint64) []Event {
	for i, e := range j.events {
		if e.Seq > seq {
			return append([]Event(nil), j.events[i:]...)
		}
	}
	return nil
}

// Wait returns the kept events after seq as soon as there is one. Its error is ctx's.
func (j *Journal) Wait(ctx context.Context, seq uint64) ([]Event, error) {
	// Exits: there is an event, or ctx is done.
	for {
		j.mu.Lock()
		if found := j.since(seq); len(found) > 0 {
			j.mu.Unlock()
			return found, nil
		}
		if j.grown == nil {
			j.grown = make(chan struct{})
		}
		grown := j.grown
		j.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-grown:
		}
	}
}
