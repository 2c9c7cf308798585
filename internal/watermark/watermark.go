// Package watermark compares how far replicas have followed the configuration's source,
// so that a proxy that changes replicas never goes backwards. Content hashes have no
// order; positions have.
package watermark

import "maps"

// Mark is a position: an epoch and, per source resource type, the position of the
// newest event applied. The zero Mark is the beginning. A Mark is immutable once shared.
type Mark struct {
	Epoch     uint64
	Positions map[string]uint64
}

// Behind reports whether m, a replica's own position, is behind what a client has
// seen. A higher epoch supersedes every position; types that the replica does not
// have are not compared.
func (m Mark) Behind(client Mark) bool {
	if m.Epoch != client.Epoch {
		return m.Epoch < client.Epoch
	}
	for t, own := range m.Positions {
		if own < client.Positions[t] {
			return true
		}
	}
	return false
}

// Clone returns a Mark that shares nothing with m.
func (m Mark) Clone() Mark {
	return Mark{Epoch: m.Epoch, Positions: maps.Clone(m.Positions)}
}
