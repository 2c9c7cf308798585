package delivery

import (
	"slices"
	"strings"

	configv1 "aether.io/aether/api/config/v1"
)

// Cause is why what is sent does not arrive. The zero Cause is none.
type Cause struct {
	Reason string // one of the reasons of the condition TelemetryDelivered
	Text   string // of the collector, in the third person
}

// String is the cause as a check carries it.
func (c Cause) String() string { return c.Reason + ": " + c.Text }

// maxText bounds what is believed of a cause's text, in bytes: it is a proxy that says it.
const maxText = 200

// CauseOf reads the reason of a failed check. Of one that is not made here only the text
// is taken, as that of a collector that refuses.
func CauseOf(reason string) Cause {
	known := []string{
		configv1.MeshConfigReasonCollectorCAMissing, configv1.MeshConfigReasonCollectorNotVerified, configv1.MeshConfigReasonCollectorUnreachable,
		configv1.MeshConfigReasonCollectorRefuses, configv1.MeshConfigReasonCollectorNotAnswering, configv1.MeshConfigReasonCollectorOverloaded,
	}
	c := Cause{Reason: configv1.MeshConfigReasonCollectorRefuses, Text: reason}
	if first, rest, found := strings.Cut(reason, ": "); found && slices.Contains(known, first) {
		c = Cause{first, rest}
	}
	if len(c.Text) > maxText {
		c.Text = strings.ToValidUTF8(c.Text[:maxText], "") + "…"
	}
	return c
}
