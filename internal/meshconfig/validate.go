package meshconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/reflect/protoreflect"

	configv1 "aether.io/aether/api/config/v1"
)

// validator compiles the rules of the proto once; it is immutable and safe to share.
var validator = sync.OnceValues(func() (protovalidate.Validator, error) {
	return protovalidate.New(protovalidate.WithMessages(&configv1.MeshConfigSpec{}), protovalidate.WithDisableLazy())
})

// Validate says what is wrong with the values of a spec, ordered by path; nothing if it
// is valid. The rules are those of the proto. A nil spec is valid.
func Validate(spec *configv1.MeshConfigSpec) []configv1.FieldError {
	if spec == nil {
		return nil
	}
	v, err := validator()
	if err != nil {
		return []configv1.FieldError{{Detail: "compile the rules: " + err.Error()}}
	}
	err = v.Validate(spec)
	if err == nil {
		return nil
	}
	violations, ok := errors.AsType[*protovalidate.ValidationError](err)
	if !ok {
		return []configv1.FieldError{{Detail: err.Error()}}
	}
	out := make([]configv1.FieldError, 0, len(violations.Violations))
	for _, violation := range violations.Violations {
		out = append(out, configv1.FieldError{
			Path:   jsonPath(spec.ProtoReflect().Descriptor(), violation.Proto.GetField()),
			Detail: detail(violation),
		})
	}
	slices.SortStableFunc(out, func(a, b configv1.FieldError) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func detail(v *protovalidate.Violation) string {
	msg := v.Proto.GetMessage()
	if msg == "" {
		msg = v.Proto.GetRuleId()
	}
	if v.FieldValue.IsValid() {
		msg = fmt.Sprintf("%s, got %v", msg, v.FieldValue.Interface())
	}
	return msg
}

// jsonPath is a path in the names that people write, not those of the proto.
func jsonPath(md protoreflect.MessageDescriptor, path *validate.FieldPath) string {
	var names []string
	for _, element := range path.GetElements() {
		name := element.GetFieldName()
		if md != nil {
			if field := md.Fields().ByNumber(protoreflect.FieldNumber(element.GetFieldNumber())); field != nil {
				name, md = field.JSONName(), field.Message()
			}
		}
		names = append(names, name)
	}
	return strings.Join(names, ".")
}
