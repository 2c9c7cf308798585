package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// release is the API of a cluster as far as the epoch goes.
type release struct {
	pods    string // items of the list
	trust   string // the ConfigMap; empty: there is none
	refuses string // the method that is forbidden
	patches []string
}

func (r *release) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	const trust = "/api/v1/namespaces/aether-system/configmaps/coxswain-discovery-trust"
	fail := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	switch {
	case req.Method == r.refuses:
		fail(http.StatusForbidden, "Forbidden")
	case strings.HasSuffix(req.URL.Path, "/pods"):
		fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","items":[%s]}`, r.pods)
	case req.URL.Path == trust && req.Method == http.MethodPatch:
		body, _ := io.ReadAll(req.Body)
		r.patches = append(r.patches, req.URL.Query().Get("fieldManager")+" "+string(body))
		fmt.Fprint(w, `{"kind":"ConfigMap","apiVersion":"v1"}`)
	case req.URL.Path == trust && r.trust != "":
		fmt.Fprint(w, r.trust)
	default:
		fail(http.StatusNotFound, "NotFound")
	}
}

func TestTheEpochIsRaisedWhenThatIsMeant(t *testing.T) {
	const pod = `{"metadata":{"name":"aether-controller-1","namespace":"aether-system"}}`
	trust := func(epoch string) string {
		return `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"coxswain-discovery-trust","annotations":{"config.aether.io/epoch":"` + epoch + `"}}}`
	}
	for name, test := range map[string]struct {
		release
		args    string
		words   string // of what is printed, or of the error
		written string // the epoch; empty: nothing is written
	}{
		"without --yes nothing is done":     {release: release{pods: pod, trust: trust("3")}, words: "the epoch is 3, and 4 supersedes it"},
		"with --yes it is raised":           {release: release{pods: pod, trust: trust("3")}, args: "--yes", words: "It is raised", written: "4"},
		"from none there is a first":        {release: release{pods: pod}, args: "--yes", words: "the epoch is 0, and 1 supersedes it", written: "1"},
		"not where there is no Aether":      {release: release{}, args: "--yes", words: "no controller of Aether is in namespace aether-system"},
		"nothing is above the highest":      {release: release{pods: pod, trust: trust("18446744073709551615")}, args: "--yes", words: "the highest"},
		"without the right that is said":    {release: release{pods: pod, trust: trust("3"), refuses: http.MethodPatch}, args: "--yes", words: "the right to patch configmaps in namespace aether-system"},
		"and without that to read it, too":  {release: release{pods: pod, trust: trust("3"), refuses: http.MethodGet}, words: "the right to list pods"},
		"words that are no flags are wrong": {release: release{pods: pod}, args: "yes", words: "unknown command"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(&test.release)
			defer server.Close()
			file := filepath.Join(t.TempDir(), "kubeconfig")
			text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`, server.URL)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			out, _, err := try(t, "", append([]string{"discovery", "reset-epoch", "--kubeconfig", file}, strings.Fields(test.args)...)...)
			if said := fmt.Sprint(out, err); !strings.Contains(said, test.words) {
				t.Errorf("it says %s, want %q", said, test.words)
			}
			want := 0
			if test.written != "" {
				want = 1
			}
			if len(test.patches) != want || want == 1 && !strings.Contains(test.patches[0], `"config.aether.io/epoch":"`+test.written+`"`) {
				t.Errorf("written %q, want epoch %q", test.patches, test.written)
			}
			if want == 1 && !strings.HasPrefix(test.patches[0], "aether-controller-epoch ") {
				t.Errorf("written by another manager than the controllers': %q", test.patches)
			}
		})
	}
}
