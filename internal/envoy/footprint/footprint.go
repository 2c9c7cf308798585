// Package footprint estimates how much memory of an Envoy a route takes, from what Envoy is
// sent. The numbers were measured (ADR 0031) and are rather too high than too low. It bounds
// nothing itself.
package footprint

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"aether.io/aether/internal/envoy/check"
)

// Bytes of an Envoy's memory.
const (
	// Host is a virtual host with a scope of its own, without routes that are made for it.
	Host = 6_500
	// Cluster is a cluster with its statistics, without endpoints.
	Cluster = 36_000
	// TLS is what a cluster takes more that is spoken to by TLS, without certificates.
	TLS = 12_000

	character = 3 // of a text, which is kept in the message and in what is made of it
	text      = 70
	message   = 100
)

// SystemAuthorities is the bytes of the system's authorities beside a proxy, which only Envoy reads.
const SystemAuthorities = 240_000

// step is what lengths of certificates are rounded up to: one that is renewed is seldom as long
// as it was, and routes are looked at again when the estimate changes.
const step = 4096

// Authorities is what that many bytes of PEM take in each cluster that trusts them.
func Authorities(length int) int64 { return rounded(length) * 14 / 10 }

// Chain is what that many bytes of PEM take in each cluster for which they are shown.
func Chain(length int) int64 { return rounded(length) * 22 / 10 }

func rounded(length int) int64 { return int64((length+step-1)/step) * step }

// messages are those that take more than others, by the last part of their names.
func messages() map[protoreflect.Name]int64 {
	return map[protoreflect.Name]int64{
		"Route":                 1_300,
		"RouteAction":           300,
		"RedirectAction":        300,
		"WeightedCluster":       500,
		"ClusterWeight":         400,
		"RequestMirrorPolicy":   250,
		"HeaderMatcher":         200,
		"QueryParameterMatcher": 200,
		"CorsPolicy":            500,
	}
}

// Route is what one of Envoy's routes takes.
func Route(m proto.Message) int64 { return walk(m.ProtoReflect(), messages()) }

func walk(m protoreflect.Message, known map[protoreflect.Name]int64) int64 {
	name := m.Descriptor().Name()
	if packed, is := m.Interface().(*anypb.Any); is {
		inner, err := packed.UnmarshalNew()
		if err != nil { // what this program packed it can read
			return int64(len(packed.GetValue())) * character
		}
		return message + walk(inner.ProtoReflect(), known)
	}
	size, is := known[name]
	if !is {
		size = message
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				size += text + character*int64(len(k.String()))
				if f.MapValue().Message() != nil {
					size += walk(v.Message(), known)
				}
				return true
			})
		case f.IsList():
			for i := range v.List().Len() {
				size += field(f, v.List().Get(i), known)
			}
		case name == "RegexMatcher" && f.Name() == "regex":
			size += check.Footprint(v.String())
		default:
			size += field(f, v, known)
		}
		return true
	})
	return size
}

func field(f protoreflect.FieldDescriptor, v protoreflect.Value, known map[protoreflect.Name]int64) int64 {
	switch {
	case f.Message() != nil:
		return walk(v.Message(), known)
	case f.Kind() == protoreflect.StringKind:
		return text/2 + character*int64(len(v.String()))
	}
	return 0
}
