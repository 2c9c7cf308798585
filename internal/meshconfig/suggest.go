package meshconfig

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/spelling"
)

// Suggest finds the known field that an unknown path most likely stands for
// (proxy.accessLogEnabled → proxy.accessLogsEnabled), or nothing if none is near.
func Suggest(unknown string) (known string, ok bool) {
	best := 0
	for _, candidate := range Fields() {
		// The path may be misspelt, or the right name in the wrong place.
		d := min(spelling.Distance(unknown, candidate), 1+spelling.Distance(last(unknown), last(candidate)))
		if d > 1+len(last(candidate))/4 {
			continue
		}
		if !ok || d < best {
			known, best, ok = candidate, d, true
		}
	}
	return known, ok
}

// Fields lists the dotted path of every field that a spec can set, sorted.
func Fields() []string {
	out := fields("", (&configv1.MeshConfigSpec{}).ProtoReflect().Descriptor())
	slices.Sort(out)
	return out
}

func fields(prefix string, md protoreflect.MessageDescriptor) []string {
	var out []string
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		out = append(out, prefix+f.JSONName())
		if f.Message() != nil && !f.IsMap() && !f.IsList() {
			out = append(out, fields(prefix+f.JSONName()+".", f.Message())...)
		}
	}
	return out
}

func last(path string) string { return path[strings.LastIndex(path, ".")+1:] }
