package front

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"aether.io/aether/internal/routing/key"
)

const (
	maxServiceName    = 63
	maxDeploymentName = 63 // a pod's name has more to it, and is a host name
	maxLabelValue     = 63
)

// SharedName is the Service's in front of the shared proxies, in the release namespace:
// {ns}-{gateway}-{class}, or something like it and a hash where a Service cannot be called so.
func SharedName(gw key.Name, class string) string {
	return serviceName(gw.Namespace+"-"+gw.Name+"-"+class, gw.Namespace+"/"+gw.Name+"/"+class)
}

// OwnName is the Service's in front of a Gateway's own proxies, in the Gateway's
// namespace: {gateway}-{class}, or something like it and a hash.
func OwnName(gw key.Name, class string) string {
	return serviceName(Account(gw, class), gw.Name+"/"+class)
}

// DeploymentName is that of a Gateway's own proxies, and of what goes with them: {gateway}-{class},
// cut and hashed past 63 characters.
func DeploymentName(gw key.Name, class string) string {
	if name := Account(gw, class); len(name) <= maxDeploymentName {
		return name
	}
	return Cut(Account(gw, class), gw.Name+"/"+class, maxDeploymentName)
}

// Account is the ServiceAccount of a Gateway's own proxies. It is always the literal
// {gateway}-{class}, for it is their identity; none can have a name of more than
// 253 characters.
func Account(gw key.Name, class string) string { return gw.Name + "-" + class }

// serviceName is name if that is a DNS label (RFC 1035) of at most 63 characters, which a
// Service's name must be.
func serviceName(name, whole string) string {
	if len(validation.IsDNS1035Label(name)) == 0 {
		return name
	}
	like := strings.ReplaceAll(name, ".", "-")
	if like[0] < 'a' { // a name may begin with a digit
		like = "ns-" + like
	}
	return Cut(like, whole, maxServiceName)
}

// Label is a name as a label's value, which is shorter than an object's name may be.
func Label(name string) string {
	if len(name) <= maxLabelValue {
		return name
	}
	return Cut(name, name, maxLabelValue)
}

// Cut is the beginning of name and a hash of what it stands for.
func Cut(name, whole string, limit int) string {
	sum := sha256.Sum256([]byte(whole))
	hash := "-" + hex.EncodeToString(sum[:5])
	return strings.TrimRight(name[:min(len(name), limit-len(hash))], "-.") + hash
}
