package main

import (
	"context"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// config of exporter "lines".
type config struct {
	Path string `mapstructure:"path"` // the file that lines are appended to
}

// lines appends each request of OTLP to a file, as one line of OTLP/JSON, before the request
// is answered: what a client was told to have arrived can be read.
type lines struct {
	component.StartFunc
	component.ShutdownFunc

	mu   sync.Mutex // one line at a time
	file *os.File
}

func linesFactory() exporter.Factory {
	return exporter.NewFactory(component.MustNewType("lines"), func() component.Config { return &config{} },
		exporter.WithLogs(func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Logs, error) {
			l, err := open(c)
			return logs{l}, err
		}, component.StabilityLevelStable),
		exporter.WithTraces(func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Traces, error) {
			l, err := open(c)
			return traces{l}, err
		}, component.StabilityLevelStable),
		exporter.WithMetrics(func(_ context.Context, _ exporter.Settings, c component.Config) (exporter.Metrics, error) {
			l, err := open(c)
			return metrics{l}, err
		}, component.StabilityLevelStable),
	)
}

func open(c component.Config) (*lines, error) {
	f, err := os.OpenFile(c.(*config).Path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &lines{file: f}
	l.ShutdownFunc = func(context.Context) error { return f.Close() }
	return l, nil
}

func (l *lines) write(line []byte, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(line, '\n')) // one write: three signals may share a file
	return err
}

type logs struct{ *lines }

func (l logs) ConsumeLogs(_ context.Context, d plog.Logs) error {
	return l.write((&plog.JSONMarshaler{}).MarshalLogs(d))
}

type traces struct{ *lines }

func (l traces) ConsumeTraces(_ context.Context, d ptrace.Traces) error {
	return l.write((&ptrace.JSONMarshaler{}).MarshalTraces(d))
}

type metrics struct{ *lines }

func (l metrics) ConsumeMetrics(_ context.Context, d pmetric.Metrics) error {
	return l.write((&pmetric.JSONMarshaler{}).MarshalMetrics(d))
}

func (logs) Capabilities() consumer.Capabilities    { return consumer.Capabilities{} }
func (traces) Capabilities() consumer.Capabilities  { return consumer.Capabilities{} }
func (metrics) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }
