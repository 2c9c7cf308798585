package aether_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A reader must find each box of the picture in the tree.
func TestPackagesThatDocumentsNameExist(t *testing.T) {
	pages, err := filepath.Glob("docs/architecture/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`((?:api|charts|cmd|internal)/[a-z0-9/_-]+)`").FindAllStringSubmatch(string(data), -1) {
			if found++; !hasGoFile(t, name[1]) {
				t.Errorf("%s names %s, which has no Go file", page, name[1])
			}
		}
	}
	if found < 20 {
		t.Fatalf("found only %d packages named in %d pages", found, len(pages))
	}
}

// hasGoFile reports whether dir, or a folder below it, has Go code.
func hasGoFile(t *testing.T, dir string) bool {
	t.Helper()
	for _, pattern := range []string{"*.go", "*/*.go"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			return true
		}
	}
	return false
}

// What code may say to a person, a person must be able to look up.
func TestWhatIsOurOwnIsInTheReference(t *testing.T) {
	page, err := os.ReadFile("docs/reference/observing.md")
	if err != nil {
		t.Fatal(err)
	}
	for source, word := range map[string]string{
		"internal/envoy/hcm/accesslog.go":      `"([a-z_]+)": +(?:"%|c\.)`,
		"internal/status/observe.go":           `(?m)^\t(?:Reason|Route|Mesh)\w+ += "([^"]+)"`,
		"api/config/v1/meshconfig_types.go":    `(?m)^\tMeshConfig\w+ += "([^"]+)"`,
		"internal/discovery/health/health.go":  `(?m)^\t[A-Z]\w+ += "([A-Z]\w+)"`,
		"internal/fleet/fleet.go":              `(?m)^\tLag\w+ += "(\w+)"`,
		"internal/statedir/statedir.go":        `"(\w+\.sock)"`,
		"internal/routing/backend/backend.go":  `(?m)^const Reason\w+ .*= "(\w+)"`,
		"internal/routing/report/httproute.go": `(?m)^\t\w+ +gatewayv1\.\w+ += "(\S+)"`,
		"internal/routing/report/set.go":       `(?m)^const \w+ = "([A-Z]\w+)"`,
		"internal/inspect/pages.go":            `(?m)^\t\w+Path += "([^"]+)"`,
	} {
		code, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(word).FindAllStringSubmatch(string(code), -1)
		if len(found) == 0 {
			t.Errorf("%s has nothing like %s", source, word)
		}
		for _, m := range found {
			if !strings.Contains(string(page), "`"+m[1]+"`") {
				t.Errorf("%s says %s, which the reference does not explain", source, m[1])
			}
		}
	}
}

// Links between documents are relative paths that must lead somewhere, to a heading if they name one.
func TestLinksBetweenDocumentsLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#]*)(?:#([^)]*))?\)`)
	for _, pattern := range []string{"*.md", "docs/*/*.md", "examples/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range link.FindAllStringSubmatch(string(data), -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				target := file
				if m[1] != "" {
					target = filepath.Join(filepath.Dir(file), m[1])
				}
				if _, err := os.Stat(target); err != nil {
					t.Errorf("%s links to %s, which is not there", file, m[1])
				} else if m[2] != "" && !slices.Contains(anchors(t, target), m[2]) {
					t.Errorf("%s links to %s, which has no heading %s", file, target, m[2])
				}
			}
		}
	}
}

// anchors are the names of a page's headings in links.
func anchors(t *testing.T, page string) []string {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(data), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}
