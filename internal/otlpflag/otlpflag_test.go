package otlpflag

import (
	"slices"
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
		"--otlp-endpoint=my_collector:4317":     `label "my_collector": want lower-case`,
		"--otlp-endpoint=*.c:4317":              "it is a pattern",
		"--otlp-endpoint=[fe80::1%eth0]:4317":   "neither a name nor an address",
		"--trace-sample-rate=1":                 "",
		"--trace-sample-rate=1.1":               "--trace-sample-rate 1.1 is not in 0..1",
		"--trace-sample-rate=-0.1":              "is not in 0..1",
		"--trace-sample-rate=NaN":               "is not in 0..1",
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
			f.Register(s, Help{})
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

func TestAProxyExportsWhatItsControllerDoes(t *testing.T) {
	for controller, want := range map[string]string{
		"":                  "",
		"--ack-deadline=1s": "",
		"--otel-enabled --otlp-endpoint=c:4317 --debug":          "--otel-enabled --otlp-endpoint=c:4317",
		"--otlp-tls --otlp-ca-config-map=ca --logs-enabled=true": "--otlp-tls --logs-enabled=true --otlp-ca-discovered",
		"--trace-sample-rate=much --trace-export":                "--trace-export",
	} {
		if got := ForProxy(strings.Fields(controller)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: got %q, want %q", controller, got, want)
		}
	}
}
