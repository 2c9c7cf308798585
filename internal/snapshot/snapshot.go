// Package snapshot is the currency between the world of a scope and those who
// subscribe to it: what a subscriber holds, what it is sent, and what it answers.
// It holds values and the rule by which both ends compute versions; it sends,
// schedules and stores nothing.
//
// # What a version stands for
//
// A version is resource.Set over all resources of the world, whether or not a
// proxy's Envoy accepted them. A subscriber therefore keeps account of what it was
// *sent* (Holding), the refused resources with the content that was refused, and
// only internal/xds knows what Envoy *runs*. The version it computes, the
// have_version of its Subscribe and the entries of its Inventory are all taken
// from what it was sent. That is why nothing is ever sent again unchanged, not
// even what was refused.
//
// # What an answer stands for
//
// An Answer describes the whole version, not the difference that led to it: it
// lists everything of that version that is refused or still pending in this
// Envoy. So whoever answers a snapshot repeats the refusals of earlier ones that
// have not been superseded, and the newest answer replaces all before.
//
// The first snapshot of every stream is sent even if it brings no difference, so
// that its answer tells what is live now.
package snapshot

import (
	"errors"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/watermark"
)

// The ends of a subscription, or of the attempt to make one, that a caller tells apart.
var (
	// ErrNotSynced: nothing is served before the source has been read once, nor a
	// scope of which it has said nothing yet.
	ErrNotSynced = errors.New("the configuration's source has not been read yet")
	// ErrBehind: the subscriber has seen a newer position of the source.
	ErrBehind = errors.New("behind what the subscriber has already seen")
	// ErrSuperseded: a newer stream of the same pod has taken over.
	ErrSuperseded = errors.New("superseded by a newer stream of the same pod")
	// ErrUnknownVersion: what the subscriber holds is not known here; it has to list it.
	ErrUnknownVersion = errors.New("the version that the subscriber holds is not known here")
	// ErrAnswer: an answer, or an inventory, to something that was never asked.
	ErrAnswer = errors.New("answer to nothing that was sent")
	// ErrClosed: the subscription has been closed.
	ErrClosed = errors.New("subscription closed")
	// ErrVersion: a snapshot does not lead to the version that it announces.
	ErrVersion = errors.New("content does not give the announced version")
)

// Have is what a subscriber claims to hold when it subscribes.
type Have struct {
	Version string             // of what it was sent, empty if it holds nothing
	Refused []resource.Refusal // what its Envoy refuses of that; hashes set, details not
	Mark    watermark.Mark     // the highest it has seen
}

// Ref is a name with the content that goes by it: one line of an inventory.
type Ref struct {
	resource.Name
	Hash resource.Hash
}

// Snapshot is an update on its way: the difference between what a subscriber was
// sent before and a version of its scope's world. It is immutable; its resources
// are shared.
type Snapshot struct {
	Nonce uint64 // unique and rising within a stream, from 1
	resource.Update
}

// Answer completes a snapshot: Envoy has accepted all of its version but what is
// refused. See the package comment for what the lists cover.
type Answer struct {
	Nonce            uint64
	Version          string
	resource.Outcome // hashes of refusals need not be set
}
