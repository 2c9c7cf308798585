package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// resource is what everything that is exported is of, by OpenTelemetry's semantic conventions.
// The SDK adds what the variable OTEL_RESOURCE_ATTRIBUTES says, which in a pod are its name
// and its namespace; what is said here counts for more.
func (t *Telemetry) resource() *sdkresource.Resource {
	attributes := []attribute.KeyValue{
		semconv.ServiceName(t.c.Service),
		semconv.ServiceInstanceID(t.instance()),
	}
	if t.c.Namespace != "" {
		attributes = append(attributes, semconv.ServiceNamespace(t.c.Namespace))
	}
	if t.c.Version != "" {
		attributes = append(attributes, semconv.ServiceVersion(t.c.Version))
	}
	return sdkresource.NewWithAttributes(semconv.SchemaURL, attributes...)
}

// instance tells this process from any other of the service: in a pod by what it is known by,
// as the conventions have it, elsewhere by nothing that means something.
func (t *Telemetry) instance() string {
	set := sdkresource.Environment().Set()
	namespace, _ := set.Value(semconv.K8SNamespaceNameKey)
	pod, _ := set.Value(semconv.K8SPodNameKey)
	if namespace.AsString() != "" && pod.AsString() != "" {
		return namespace.AsString() + "." + pod.AsString() + "." + t.c.Service
	}
	return t.random
}
