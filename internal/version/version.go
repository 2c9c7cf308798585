// Package version says which build of Aether this binary is.
package version

import (
	"runtime/debug"
)

// Set by the linker (-X), which can set nothing but variables, and by nothing else.
// Empty in a plain go build and in tests.
var (
	number   string
	revision string
)

// Build is what is known of a build. Zero fields are unknown.
type Build struct {
	Version  string `json:"version"`            // v1.2.3, v1.2.3-4-gabc, or dev
	Revision string `json:"revision,omitempty"` // of the source, 40 hex digits; -dirty if it was changed
	Go       string `json:"go,omitempty"`       // the toolchain: go1.26.8
}

// Get describes this binary: what the linker was told, else what the go command stamped.
func Get() Build {
	b := Build{Version: number, Revision: revision}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Go = info.GoVersion
		if b.Revision == "" {
			b.Revision = stamped(info.Settings)
		}
	}
	if b.Version == "" {
		b.Version = "dev"
	}
	return b
}

func stamped(settings []debug.BuildSetting) string {
	var rev, suffix string
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			suffix = "-dirty"
		}
	}
	if rev == "" {
		return ""
	}
	return rev + suffix
}

// String is the version and, in brackets, the revision and the toolchain.
func (b Build) String() string {
	out := b.Version
	if b.Revision != "" {
		out += " (" + b.Revision + ", " + b.Go + ")"
	} else if b.Go != "" {
		out += " (" + b.Go + ")"
	}
	return out
}
