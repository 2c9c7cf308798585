// Package aether is the root of Aether, a Kubernetes gateway and service mesh on stock Envoy.
package aether
