package projection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
)

// MaxStored is how much of a ConfigMap, with who owns each of its keys, etcd is given at
// most, in bytes: it takes 1.5 MiB, and others may own keys too.
const MaxStored = 1<<20 + 384<<10

// ownership is what a key costs beside itself where the API server notes whose it is.
const ownership = 16

// plan is what is to be in the ConfigMap.
type plan struct {
	text map[string]string
	left []string // namespaces for whose MeshConfig there is no room, sorted
}

// keyOf is where the MeshConfig of a namespace is.
func keyOf(release, namespace string) string {
	if namespace == release {
		return ReleaseKey
	}
	return keyPrefix + namespace + keySuffix
}

// choose plans what fits beside what is somebody else's: first the release namespace's, from
// which all inherit, then those of the others in the order of their names, up to the first
// for which there is no room. So it is the same on every replica, and can be told in a sentence.
func choose(entries map[string]*entry, release string, foreign int) plan {
	names := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		if (a == release) != (b == release) {
			if a == release {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	p := plan{text: map[string]string{}}
	content, stored := foreign, foreign
	for _, ns := range names {
		value := entries[ns].text
		if value == "" {
			continue
		}
		k := keyOf(release, ns)
		content += len(k) + len(value)
		stored += 2*len(k) + len(value) + ownership
		if len(p.left) > 0 || content > configmap.MaxContent || stored > MaxStored {
			p.left = append(p.left, ns)
			continue
		}
		p.text[k] = value
	}
	return p
}

// same reports whether a ConfigMap has what it is to have of ours, and nothing more.
func same(s configmap.State, want map[string]string) bool {
	return len(s.Amiss) == 0 && maps.Equal(s.Text, want)
}

// write puts into words what an entry is projected as, once. Of one that is refused, with no
// version before it known, that is what is there when it is first looked, if it is a MeshConfig.
func (n *entry) write(there string) error {
	first := !n.looked
	n.looked = true
	switch {
	case n.text != "":
		return nil
	case n.inEffect:
		text, err := meshconfig.Format(n.spec)
		if err != nil {
			return err
		}
		n.text = string(text)
	case first && there != "":
		if _, _, err := meshconfig.Parse([]byte(there)); err == nil {
			n.text = there
		}
	}
	return nil
}

// verdict is what is known of the ConfigMap when it is found out what became of whom.
type verdict struct {
	at      string           // the ConfigMap
	release string           // namespace
	known   *configmap.State // nil: not known
	left    map[string]bool  // namespaces for which there is no room
	total   int              // MeshConfigs that are to be in it
	fault   error            // why it is not as it is to be; nil: it is
}

// of is what became of an entry; known is false if that is open.
func (v verdict) of(namespace string, n *entry) (c metav1.Condition, known bool) {
	key := keyOf(v.release, namespace)
	there := v.known != nil && n.text != "" && v.known.Text[key] == n.text
	no := func(reason, format string, args ...any) (metav1.Condition, bool) {
		return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}, true
	}
	switch {
	case n.refused != "":
		effect := "what is in " + v.at + " stays"
		switch {
		case there && n.inEffect:
			effect = fmt.Sprintf("the last good version stays in effect, under key %s of %s", key, v.at)
		case there:
			effect = fmt.Sprintf("key %s of %s stays as it was before the controller started; gateways of the namespace inherit", key, v.at)
		case v.known != nil && n.text == "":
			effect = "no earlier version is known: the namespace inherits"
		}
		return no(configv1.MeshConfigReasonInvalidConfig, "%s; %s", n.refused, effect)
	case there:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: configv1.MeshConfigReasonProjected, Message: fmt.Sprintf("key %s of %s", key, v.at)}, true
	case n.text != "" && v.left[namespace]:
		return no(configv1.MeshConfigReasonApplyFailed, "there is no room for key %s in %s, which takes %d of %d MeshConfigs: "+
			"the release namespace's, then the others by name", key, v.at, v.total-len(v.left), v.total)
	case v.fault != nil:
		return no(configv1.MeshConfigReasonApplyFailed, "%v; will retry", v.fault)
	}
	return metav1.Condition{}, false
}

// all is what became of all entries, as far as it is known.
func (v verdict) all(entries map[string]*entry) map[object.Key]Told {
	out := make(map[object.Key]Told, len(entries))
	for ns, n := range entries {
		c, known := v.of(ns, n)
		if !known {
			continue
		}
		c.Type, c.ObservedGeneration = configv1.MeshConfigProjected, n.generation
		k := object.Key{Kind: object.MeshConfig, Namespace: ns, Name: configv1.MeshConfigName}
		out[k] = Told{Key: k, UID: n.uid, Generation: n.generation, Condition: c}
	}
	return out
}
