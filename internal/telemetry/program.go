package telemetry

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/otlpflag"
	"aether.io/aether/internal/version"
)

// lastWords is how long the end of a process waits for what it still has to export. It comes
// after its parts have stopped, and is short of what a kubelet leaves it.
const lastWords = 3 * time.Second

// Program is one of our programs, as its flags say it.
type Program struct {
	Component string         // which it is: its name is "aether-" and this
	Namespace string         // of the release; empty: not said
	Debug     bool           // whether it says what only developers want to know
	Flags     otlpflag.Flags // checked; what is exported at all is for --otel-enabled to say
}

// Run runs the program from its begin to its end, with its logger, its registry and what exports
// both. It logs to out in any case. At the end what waits is sent, and with it why the program
// ended, if that is an error, which it returns.
func (p Program) Run(ctx context.Context, out io.Writer, serve func(context.Context, *slog.Logger, *prometheus.Registry, *Telemetry) error) error {
	level := slog.LevelInfo
	if p.Debug {
		level = slog.LevelDebug
	}
	beside := slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}).WithAttrs([]slog.Attr{slog.String(logkey.Component, p.Component)})
	metrics := prometheus.NewRegistry()
	t, err := New(p.config(metrics, slog.New(beside))) //nolint:contextcheck // what it starts ends with Shutdown
	if err != nil {
		return err
	}
	err = serve(ctx, slog.New(t.LogHandler(beside, level)), metrics, t)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err != nil {
		t.logLast(ending, err)
	}
	if lost := t.Shutdown(ending); lost != nil {
		t.c.Log.Debug("what was to be exported last is lost", logkey.Error, lost)
	}
	return err
}

// config is what the program exports of itself; log is one that is not exported.
func (p Program) config(metrics *prometheus.Registry, log *slog.Logger) Config {
	c := Config{
		Service: "aether-" + p.Component, Namespace: p.Namespace, Version: version.Get().Version,
		Metrics: metrics, Registerer: metrics, Log: log,
	}
	if f := p.Flags; f.Enabled {
		c.Endpoint, c.TLS, c.ServerName, c.Trust = f.Endpoint, f.TLS, f.ServerName, f.Authorities != ""
		c.Logs, c.Traces, c.SampleRate = f.Logs, f.TraceExport, f.SampleRate
	}
	return c
}
