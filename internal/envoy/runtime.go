package envoy

import (
	"math"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
	"aether.io/aether/internal/resource"
)

// RuntimeName is the name of the one runtime layer, and of its resource.
const RuntimeName = wire.RuntimeLayer

// Validate tells whether Envoy will take the layer. Errors are *InvalidError.
func (r Runtime) Validate() error { return attribute(r.Origin, within("runtime", r.check())) }

func (r Runtime) check() error {
	for table, log := range r.AccessLogs {
		if err := check.Table(table); err != nil {
			return within("access log "+table, err)
		}
		if log.SuccessSample > 100 {
			return invalid("access log "+table+": success sample", "%d: want 0 to 100", log.SuccessSample)
		}
	}
	for table, share := range r.Traces {
		if err := check.Table(table); err != nil {
			return within("traces of "+table, err)
		}
		if !(share >= 0 && share <= 1) {
			return invalid("traces of "+table, "%v: want 0 to 1", share)
		}
	}
	for table := range r.PodStats {
		if err := check.Table(table); err != nil {
			return within("pod statistics of "+table, err)
		}
	}
	for name := range r.Connections {
		if err := check.Name(name); err != nil {
			return within("connections of "+name, err)
		}
	}
	return nil
}

func onOff(on bool) *structpb.Value {
	if on {
		return structpb.NewNumberValue(100)
	}
	return structpb.NewNumberValue(0)
}

// connectionLimit is Envoy's own key; the listener's name is taken as it is, dots and
// slashes too. A connection above the limit is closed as it comes in.
func connectionLimit(listener string) string {
	return "envoy.resource_limits.listener." + listener + ".connection_limit"
}

// Resource encodes the layer under RuntimeName. A table that is not in it logs
// nothing, traces nothing and counts nothing by pod.
func (r Runtime) Resource() (*resource.Resource, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	layer := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for table, log := range r.AccessLogs {
		layer.Fields[hcm.AccessLogEnabled+table] = onOff(log.Enabled)
		layer.Fields[hcm.AccessLogSuccess+table] = structpb.NewNumberValue(float64(log.SuccessSample))
	}
	for table, share := range r.Traces {
		layer.Fields[hcm.TraceSample+table] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"numerator":   structpb.NewNumberValue(math.Round(share * 1e6)),
			"denominator": structpb.NewStringValue("MILLION"),
		}})
	}
	for table, on := range r.PodStats {
		layer.Fields[hcm.PodStats+table] = onOff(on)
	}
	for listener, limit := range r.Connections {
		layer.Fields[connectionLimit(listener)] = structpb.NewNumberValue(float64(limit))
	}
	return encode(RuntimeName, &runtimev3.Runtime{Name: RuntimeName, Layer: layer}, r.Origin)
}
