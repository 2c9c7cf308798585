package front

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
)

// Kept is the kind of the objects that have on record how a Gateway was served last, where
// there are no Services: GatewayParameters with the Gateway's namespace and name. Nobody can write one.
const Kept object.Kind = "KeptParameters"

// classAnnotation is the class of the Gateway: with it what is on record ends.
const classAnnotation = "config.aether.io/gateway-class"

// Keep is what has on record that the Gateway of a class was served by parameters, which a
// Front has. An error: they are not of that form.
func Keep(gw key.Name, class, parameters string) (object.Change, error) {
	o := &configv1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{
		Namespace: gw.Namespace, Name: gw.Name, Annotations: map[string]string{classAnnotation: class},
	}}
	err := json.Unmarshal([]byte(parameters), &o.Spec)
	return object.Change{Key: gw.Object(Kept), Object: o, Implied: true}, err
}

// ReadKept is the parameters by which a Gateway of that class was served last; empty: none
// are on record.
func ReadKept(o *configv1.GatewayParameters, class string) string {
	if o == nil || o.Annotations[classAnnotation] != class {
		return ""
	}
	text, err := json.Marshal(o.Spec)
	if err != nil { // it has nothing in it that cannot be encoded
		return ""
	}
	return string(text)
}
