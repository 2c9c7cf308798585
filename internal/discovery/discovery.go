// Package discovery is what both ends of the discovery channel share: the wire
// version, the cutting of snapshots and inventories into chunks and their assembly,
// and the conversions between messages and values. It opens no connection and keeps
// no state between messages but that of an assembly. Snapshots enter as values and
// leave as messages on the server's side, the other way round on the client's.
package discovery

import "errors"

// WireVersion is the version of the protocol. Both ends must have the same.
const WireVersion = 1

// MaxMessage is the most bytes that one encoded message may have, in either direction.
const MaxMessage = 1 << 20

// ErrProtocol is returned for messages that a correct peer does not send.
var ErrProtocol = errors.New("protocol violation")
