package otlpflag

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestFlagsThatMeanNothingAreRefused(t *testing.T) {
	for args, want := range map[string]string{
		"":                                      "",
		"--otlp-endpoint=collector:4317":        "",
		"--otlp-endpoint=[fd00::1]:4317":        "",
		"--otlp-endpoint=collector":             `"collector" is not host:port`,
		"--otlp-endpoint=collector:0":           "is not host:port",
		"--otlp-endpoint=:4317":                 "is not host:port",
		"--otlp-endpoint=https://c:4317":        "is not host:port",
		"--otlp-tls":                            "there is none",
		"--otlp-server-name=x":                  "there is none",
		"--otlp-endpoint=c:1 --otlp-tls":        "",
		"--otlp-endpoint=10.0.0.1:1":            "",
		"--otlp-endpoint=10.0.0.1:1 --otlp-tls": "give --otlp-server-name",
		"--otlp-endpoint=[fd00::1]:1 --otlp-tls --otlp-server-name=c": "",
		"--otlp-endpoint=c:1 --otlp-server-name=c":                    "without --otlp-tls",
	} {
		t.Run(args, func(t *testing.T) {
			var f Flags
			s := pflag.NewFlagSet("", pflag.ContinueOnError)
			f.Register(s)
			if err := s.Parse(strings.Fields(args)); err != nil {
				t.Fatal(err)
			}
			err := f.Check()
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("got %v, want %q", err, want)
			}
		})
	}
}
