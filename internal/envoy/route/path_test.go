package route

import "testing"

func TestPathsToMatchAreReadAsThoseOfRequests(t *testing.T) {
	for path, want := range map[string]string{
		"/":                   "/",
		"/%61bc":              "/abc",
		"/%7Euser/%2dx%2E%5f": "/~user/-x._",
		"/caf%c3%A9":          "/caf%C3%A9",
		"/a%2fb%5cc%20":       "/a%2Fb%5Cc%20",
		"/%2561":              "/%2561",
		"/a/%2e%2E/b":         "/b",
		"/a/./b/%2e":          "/a/b/",
		"/a/b/..":             "/a/",
		"/%2e%2e/a":           "/a",
		"/a//../b":            "/a/b",
		"/a/..;x/b":           "/b",
		"/a/..x":              "/a/..x",
		"//a///":              "//a///",
		"/%":                  "/%",
		"/%6":                 "/%6",
		"/%zz":                "/%zz",
		"/%+1":                "/%+1",
		"a/../b":              "a/../b",
		"":                    "",
	} {
		if got := NormalPath(path); got != want {
			t.Errorf("%q: got %q, want %q", path, got, want)
		}
		if got := NormalPath(want); got != want {
			t.Errorf("%q: again it is %q", want, got)
		}
	}
}
