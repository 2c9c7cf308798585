package analyze

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
)

// Told is how a condition of an object is told.
func Told(k object.Key, c metav1.Condition) Finding {
	a := &analysis{codes: code.All(), written: map[object.Key]*Document{k: {Key: k}}}
	a.condition(k, "", c)
	return a.findings[0]
}
