// Package configv1 holds Aether's own API objects, config.aether.io/v1: MeshConfig and
// GatewayParameters, and the proto that is the spec of a MeshConfig. It is their shape,
// their bytes and their copies; what they mean is in internal/meshconfig and in the
// engines that read them. Objects enter as JSON (an API server, a file) and leave the same way.
//
// +groupName=config.aether.io
// +versionName=v1
package configv1
