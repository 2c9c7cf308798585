package resource

import "aether.io/aether/internal/watermark"

// OwnTypePrefix begins the type URLs of the resources that are Aether's own, such as
// the trust bundle. They are sent, counted in versions, held and kept as last-good like
// any other, but are never handed to Envoy.
const OwnTypePrefix = "type.googleapis.com/coxswain."

// ForEnvoy reports whether the resource of that name is handed to Envoy.
func (n Name) ForEnvoy() bool {
	return len(n.TypeURL) < len(OwnTypePrefix) || n.TypeURL[:len(OwnTypePrefix)] != OwnTypePrefix
}

// Update is one whole snapshot as a proxy receives it: what becomes different, and the
// version that the set of resources has afterwards. It is verified before anyone sees
// it: every hash is its payload's, and Version is the version of the resulting set.
// Both lists are sorted by name and name no resource twice.
type Update struct {
	Version string // of all resources held once this is applied, own types and refused ones included
	// Full says that everything held and not in Changed is removed; Removed is then empty.
	Full    bool
	Changed []*Resource
	Removed []Name
	Mark    watermark.Mark
}

// Outcome is what Envoy says of all that is held, whichever update brought it.
type Outcome struct {
	Pending []Name    // accepted, still warming; sorted
	Refused []Refusal // not accepted; what Envoy had before stays live; sorted
}

// Held is what a proxy holds: the set as the controller sent it, refused contents and
// own types included, so that Version is the version of Resources.
type Held struct {
	Version   string      // empty if nothing was ever held
	Resources []*Resource // sorted by name; not to be changed
	Refused   []Refusal   // those of Resources whose content Envoy does not accept; sorted
	Mark      watermark.Mark
}

// Observed is what the Envoy beside a proxy really runs at one moment.
type Observed struct {
	Version string // the newest version for which Envoy has answered, empty if none
	Outcome
	BoundPorts     []uint32 // TCP ports on which its listeners are really listening, sorted
	EnvoyConnected bool
	EnvoyVersion   string // as Envoy reports it, empty until it has connected once
	// Configured says that a first full snapshot is live, received or restored from last-good,
	// in the Envoy that is connected now.
	Configured bool
}
