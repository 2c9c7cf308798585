package version

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestGetWithoutLinkerFlags(t *testing.T) {
	if got := Get(); got.Version != "dev" || got.Go != runtime.Version() {
		t.Errorf("got %+v", got)
	}
}

func TestStampedRevision(t *testing.T) {
	for name, tc := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"built outside a repository": {nil, ""},
		"built from a commit":        {[]debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}, "abc"},
		"built from a changed tree":  {[]debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "abc"}}, "abc-dirty"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stamped(tc.settings); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestString(t *testing.T) {
	for want, b := range map[string]Build{
		"dev":                  {Version: "dev"},
		"v1.0.0 (go1.26)":      {Version: "v1.0.0", Go: "go1.26"},
		"v1.0.0 (abc, go1.26)": {Version: "v1.0.0", Revision: "abc", Go: "go1.26"},
	} {
		if got := b.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
