//go:build component

package protocol_test

import (
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/test/echo"
)

// named is what manifests has, under other names.
func named(name, host string, port int) string {
	return strings.ReplaceAll(manifests(host, port, ""), strings.ReplaceAll(host, ".", "-"), name)
}

// nextSecond waits until objects that are made now are younger than those made before:
// their age is told in seconds.
func nextSecond() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for before := time.Now().Unix(); time.Now().Unix() == before; {
		<-tick.C
	}
}

func TestOfEqualMatchesTheOldestRouteWinsAndThenTheFirstByName(t *testing.T) {
	servers := map[string]int{}
	for _, name := range []string{"old", "young", "first", "second"} {
		s, err := echo.Start(t.Context(), echo.Config{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		servers[name] = s.Port
	}
	inBothModes(t, func(t *testing.T, w *world) {
		expect := func(host, want string) {
			t.Helper()
			resp, body, err := w.say(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			if err != nil || resp.Header.Get(echo.BackendHeader) != want {
				t.Errorf("%s: %v %s %v, want the answer of %s", host, resp, body, err, want)
			}
		}
		const age, name = "age.tie.example.com", "name.tie.example.com"
		w.apply(t, "z-tie.yaml", named("z-tie", age, servers["old"]))
		nextSecond()
		w.apply(t, "a-tie.yaml", named("a-tie", age, servers["young"]))
		expect(age, "old")
		// In one file they are of one age. As text "b-tie" comes before "y-tie".
		w.apply(t, "tie.yaml", named("y-tie", name, servers["second"])+"---\n"+named("b-tie", name, servers["first"]))
		expect(name, "first")
		w.apply(t, "z-tie.yaml", named("z-tie", "elsewhere.tie.example.com", servers["old"]))
		expect(age, "young")
		w.apply(t, "z-tie.yaml", named("z-tie", age, servers["old"])) // an edit does not make it younger
		expect(age, "old")
	})
}
