package verdict

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
)

// bundle is the authorities of the collector, as their ConfigMap has them.
type bundle struct {
	problem string    // why there are none
	missing bool      // there is no such ConfigMap, or no such entry in it
	until   time.Time // when the last one expires
}

// fault is what is wrong with the authorities. The zero fault is none.
type fault struct{ reason, text string }

// read takes in a ConfigMap; nil is one that is not there.
func read(o object.Object) *bundle {
	m, _ := o.(*corev1.ConfigMap)
	of := trust.ReadConfigMap(m)
	b := &bundle{problem: of.Problem, missing: m == nil}
	if m != nil {
		_, text := m.Data[trust.Key]
		_, binary := m.BinaryData[trust.Key]
		b.missing = !text && !binary
	}
	rest := of.Authorities
	// Exits: no block is left.
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return b
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && c.NotAfter.After(b.until) {
			b.until = c.NotAfter
		}
	}
}

// fault is what is wrong at a time, and how long after it that will be another; 0: never. A
// nil bundle is not known, and nothing is wrong with it.
func (b *bundle) fault(at object.Key, now time.Time) (fault, time.Duration) {
	const without = "; without it proxies cannot verify the collector, and send nothing on new connections"
	switch name := at.String(); {
	case b == nil:
	case b.problem != "" && b.missing:
		return fault{configv1.MeshConfigReasonCollectorCAMissing, name + " " + b.problem + without}, 0
	case b.problem != "":
		return fault{configv1.MeshConfigReasonCollectorCAInvalid, name + ": " + b.problem + without}, 0
	case !now.Before(b.until):
		text := fmt.Sprintf("%s: every certificate in its %s has expired, the last one at %s", name, trust.Key, b.until.UTC().Format(time.RFC3339))
		return fault{configv1.MeshConfigReasonCollectorCAExpired, text + without}, 0
	default:
		return fault{}, b.until.Sub(now)
	}
	return fault{}, 0
}
