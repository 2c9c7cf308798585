package collector

import (
	"encoding/json"
	"testing"
)

// Request is one request of OTLP/JSON, of any of the three signals.
type Request struct {
	Logs []struct {
		Resource resource
		Scopes   []struct{ LogRecords []Log } `json:"scopeLogs"`
	} `json:"resourceLogs"`
	Traces []struct {
		Resource resource
		Scopes   []struct{ Spans []Span } `json:"scopeSpans"`
	} `json:"resourceSpans"`
	Metrics []struct {
		Resource resource
		Scopes   []struct{ Metrics []Metric } `json:"scopeMetrics"`
	} `json:"resourceMetrics"`
}

type resource struct{ Attributes Attributes }

// Attributes are by name; values that are no strings are as JSON has them.
type Attributes map[string]string

// UnmarshalJSON reads OTLP's list of them.
func (a *Attributes) UnmarshalJSON(text []byte) error {
	var list []struct {
		Key   string
		Value map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return err
	}
	*a = Attributes{}
	for _, of := range list {
		for _, v := range of.Value {
			var s string
			if json.Unmarshal(v, &s) != nil {
				s = string(v)
			}
			(*a)[of.Key] = s
		}
	}
	return nil
}

// Log is a log record, with the resource that it is of.
type Log struct {
	Resource   Attributes `json:"-"`
	Attributes Attributes
	Severity   string                     `json:"severityText"`
	Body       map[string]json.RawMessage // as OTLP has it
	TraceID    string                     `json:"traceId"`
	SpanID     string                     `json:"spanId"`
}

// Span is a span, with the resource that it is of.
type Span struct {
	Resource   Attributes `json:"-"`
	Attributes Attributes
	Name       string
	Kind       int
	TraceID    string `json:"traceId"`
	SpanID     string `json:"spanId"`
	ParentID   string `json:"parentSpanId"`
}

// Kinds of spans.
const (
	KindServer = 2
	KindClient = 3
)

// Metric is a metric, with the resource that it is of.
type Metric struct {
	Resource Attributes `json:"-"`
	Name     string
	Sum      *struct{ DataPoints []Point }
	Gauge    *struct{ DataPoints []Point }
	// Histograms of either kind.
	Histogram   *struct{ DataPoints []Point }
	Exponential *struct{ DataPoints []Point } `json:"exponentialHistogram"`
}

// Point is a value of a metric.
type Point struct {
	Attributes Attributes
	Int        string  `json:"asInt"`
	Double     float64 `json:"asDouble"`
}

// Logs is every log record received.
func (c *Collector) Logs(t *testing.T) []Log {
	t.Helper()
	var list []Log
	for _, r := range c.Received(t) {
		for _, of := range r.Logs {
			for _, s := range of.Scopes {
				for _, l := range s.LogRecords {
					l.Resource = of.Resource.Attributes
					list = append(list, l)
				}
			}
		}
	}
	return list
}

// Spans is every span received.
func (c *Collector) Spans(t *testing.T) []Span {
	t.Helper()
	var list []Span
	for _, r := range c.Received(t) {
		for _, of := range r.Traces {
			for _, s := range of.Scopes {
				for _, one := range s.Spans {
					one.Resource = of.Resource.Attributes
					list = append(list, one)
				}
			}
		}
	}
	return list
}

// Metrics is every metric received, of each request.
func (c *Collector) Metrics(t *testing.T) []Metric {
	t.Helper()
	var list []Metric
	for _, r := range c.Received(t) {
		for _, of := range r.Metrics {
			for _, s := range of.Scopes {
				for _, m := range s.Metrics {
					m.Resource = of.Resource.Attributes
					list = append(list, m)
				}
			}
		}
	}
	return list
}
