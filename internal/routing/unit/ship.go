package unit

import (
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// shipSecret puts a certificate into a world in which some listener uses it.
func (u *Units) shipSecret(c *sheet.Cell, k key.Placed[key.Name]) none {
	u.put(c, k.Scope, u.credentials.Secret(c, k.Of).Resource)
	return none{}
}

// shipCluster puts a cluster into a world in which some route uses it, and asks for what
// its TLS needs there.
func (u *Units) shipCluster(c *sheet.Cell, k key.Placed[key.Service]) none {
	of := u.clusters.Get(c, k.Of)
	u.put(c, k.Scope, of.Cluster, of.Endpoints)
	if of.Policy != (key.Name{}) {
		u.trusts.Put(c, key.Placed[key.Name]{Scope: k.Scope, Of: of.Policy}, k.Of.Cluster(), none{})
	}
	if of.Certificate != (key.Name{}) {
		u.secrets.Put(c, key.Placed[key.Name]{Scope: k.Scope, Of: of.Certificate}, "cluster "+k.Of.Cluster(), none{})
	}
	return none{}
}

// shipTrust puts a policy's authorities into a world in which some cluster needs them.
func (u *Units) shipTrust(c *sheet.Cell, k key.Placed[key.Name]) none {
	u.put(c, k.Scope, u.clusters.Policy(c, k.Of).Trust)
	return none{}
}
