package delivery

import (
	"strings"
	"testing"
	"time"

	configv1 "aether.io/aether/api/config/v1"
)

// at runs a judge over whiles of five seconds, a letter each: g good, b bad, u bad for
// another cause, o overflow and nothing else, . idle. It returns what was said after each: G, B or ?, and the judge.
func at(script string) (string, *judge) {
	j := &judge{confirm: DefaultConfirm}
	var said strings.Builder
	for i, c := range script {
		var of counts
		switch c {
		case 'g':
			of.arrived = 100
		case 'b':
			of.refused, of.unconnected = 5, 1
		case 'u':
			of.unanswered = 5
		case 'o':
			of.refused, of.overflown = 5, 5
		}
		j.take(time.Unix(int64(5*i), 0), of)
		said.WriteByte("?GB"[j.said])
	}
	return said.String(), j
}

func TestWhatIsSaidOfOneWhileAfterTheOther(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"nothing is known while nothing is sent":         {"....", "????"},
		"the first that arrives is believed":             {".g..", "?GGG"},
		"ten seconds of failures are believed":           {"gbbb", "GGGB"},
		"so is one failure after which nothing is sent":  {"gb..", "GGGB"},
		"what arrives in between takes it back":          {"gbbgbbg", "GGGGGGG"},
		"from the start, too":                            {"bbb", "??B"},
		"ten seconds of success end it":                  {"bbbggg", "??BBBG"},
		"a failure in between does not":                  {"bbbggbggbgg", "??BBBBBBBBB"},
		"one that comes and goes is believed ever later": {"gbbbgggbbbgggggbbbggggggggg", "GGGBBBGGGBBBBBGGGBBBBBBBBBG"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := at(c.script); got != c.want {
				t.Errorf("%s gives\n%s, want\n%s", c.script, got, c.want)
			}
		})
	}
}

func TestSinceIsTheFirstOfWhatWasSeen(t *testing.T) {
	_, j := at("ggbbbbb")
	if got := j.since.Unix(); got != 10 {
		t.Errorf("it is since %d s, want 10", got)
	}
}

func TestACauseIsThatOfAllThatFailedForTenSeconds(t *testing.T) {
	unreachable, silent := configv1.MeshConfigReasonCollectorUnreachable, configv1.MeshConfigReasonCollectorNotAnswering
	for script, want := range map[string]string{
		"bbb": unreachable, "bbbu": unreachable, "bbbubub": unreachable, "bbbuu": silent,
		"bbb...u": unreachable, "bbb...u..b": unreachable, "bbb...u..b..u": unreachable, "bbbgu": unreachable, "bbb...u..u": silent,
		"oou": silent, "uoo": silent, "uoououo": silent, "ooo": silent, "oouooooo": silent,
	} {
		if _, j := at(script); j.cause.Reason != want {
			t.Errorf("%s: %s, want %s", script, j.cause.Reason, want)
		}
	}
}

func TestOverflowIsAnOverloadOnlyIfSomethingArrives(t *testing.T) {
	for name, c := range map[string]struct {
		of   counts
		want string
	}{
		"a part arrives":            {counts{arrived: 5, refused: 50, overflown: 50}, configv1.MeshConfigReasonCollectorOverloaded},
		"nothing comes back":        {counts{refused: 50, overflown: 50}, configv1.MeshConfigReasonCollectorNotAnswering},
		"it closes connections":     {counts{refused: 50, overflown: 50, cut: 2}, configv1.MeshConfigReasonCollectorRefuses},
		"nothing but errors return": {counts{refused: 60, overflown: 50}, configv1.MeshConfigReasonCollectorRefuses},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.of.cause().Reason; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestCausesPassThroughChecks(t *testing.T) {
	c := counts{wrongName: 1}.cause()
	if got := CauseOf(c.String()); got != c {
		t.Errorf("%+v came back as %+v", c, got)
	}
	for _, foreign := range []string{"Nonsense: text", "", strings.Repeat("ä", 5000)} {
		if got := CauseOf(foreign); got.Reason != configv1.MeshConfigReasonCollectorRefuses || len(got.Text) > maxText+len("…") {
			t.Errorf("%.20q: %s, %d bytes", foreign, got.Reason, len(got.Text))
		}
	}
}
