package fuzz_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/test/admit"
)

// compiled is what a graph made of objects.
type compiled struct {
	worlds   map[scope.Scope][]*resource.Resource
	statuses map[object.Key]routing.Status
}

func newGraph() *routing.Graph {
	g, err := routing.New(routing.Config{ControllerName: controller, ReleaseNamespace: release, Address: "127.0.0.1", AccessLogPath: "/dev/null"})
	if err != nil {
		panic(err)
	}
	return g
}

func compile(objects []object.Object) compiled {
	var changes []object.Change
	for _, o := range objects {
		changes = append(changes, object.Change{Key: admit.Key(o), Object: o})
	}
	d := newGraph().Apply(changes)
	out := compiled{worlds: map[scope.Scope][]*resource.Resource{}, statuses: map[object.Key]routing.Status{}}
	for s, w := range d.Worlds {
		out.worlds[s] = w.Changed
	}
	for _, s := range d.Statuses {
		out.statuses[s.Key] = s
	}
	return out
}

// check compiles the objects and says what is wrong with what comes out.
func check(all map[string]definition, objects []object.Object) error {
	c := compile(objects)
	var errs []error
	for s, world := range c.worlds {
		for _, r := range world {
			if err := wellFormed(r); err != nil {
				errs = append(errs, fmt.Errorf("%s: %s: %w", s, r.Name, err))
			}
		}
	}
	back := slices.Clone(objects)
	slices.Reverse(back)
	errs = append(errs, same(c, compile(back)), answered(objects, c.statuses), writable(all, c.statuses))
	return errors.Join(errs...)
}

// same: equal objects give equal bytes, in whatever order they come.
func same(a, b compiled) error {
	for _, s := range slices.Collect(maps.Keys(a.worlds)) {
		if !slices.EqualFunc(a.worlds[s], b.worlds[s], func(x, y *resource.Resource) bool { return x.Name == y.Name && bytes.Equal(x.Payload, y.Payload) }) {
			return fmt.Errorf("%s: the same objects in another order give other resources", s)
		}
	}
	return nil
}

// wellFormed reads a resource and every message in it as Envoy would, and applies the
// rules that are written in Envoy's own definitions.
func wellFormed(r *resource.Resource) error {
	return packed(r.Any())
}

func packed(a *anypb.Any) error {
	m, err := a.UnmarshalNew()
	if errors.Is(err, protoregistry.NotFound) {
		return fmt.Errorf("nobody knows the type %s", a.GetTypeUrl())
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", a.GetTypeUrl(), err)
	}
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		if err := v.ValidateAll(); err != nil {
			return err
		}
	}
	return inside(m.ProtoReflect())
}

func inside(m protoreflect.Message) (err error) {
	visit := func(v protoreflect.Value) {
		sub := v.Message().Interface()
		if a, ok := sub.(*anypb.Any); ok {
			err = errors.Join(err, packed(a))
		} else {
			err = errors.Join(err, inside(sub.ProtoReflect()))
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { visit(v); return true })
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				visit(v.List().Get(i))
			}
		case !f.IsMap() && !f.IsList() && f.Message() != nil:
			visit(v)
		}
		return true
	})
	return err
}

// answered: every object of ours has conditions.
func answered(objects []object.Object, statuses map[object.Key]routing.Status) error {
	var errs []error
	ours := map[string]bool{}
	for _, o := range objects {
		if c, ok := o.(*gatewayv1.GatewayClass); ok && c.Spec.ControllerName == controller {
			ours[c.Name] = true
		}
	}
	gateways := map[[2]string]bool{}
	say := func(o object.Object, format string, args ...any) {
		errs = append(errs, fmt.Errorf("status of %s: %s", admit.Key(o), fmt.Sprintf(format, args...)))
	}
	for _, o := range objects {
		g, ok := o.(*gatewayv1.Gateway)
		if !ok || !ours[string(g.Spec.GatewayClassName)] {
			continue
		}
		gateways[[2]string{g.Namespace, g.Name}] = true
		s, ok := statuses[admit.Key(g)].Value.(*gatewayv1.GatewayStatus)
		if !ok {
			say(g, "there is none")
			continue
		}
		say1 := func(err error) {
			if err != nil {
				say(g, "%v", err)
			}
		}
		say1(conditions(s.Conditions, g.Generation))
		if len(s.Listeners) != len(g.Spec.Listeners) {
			say(g, "%d listeners, want %d", len(s.Listeners), len(g.Spec.Listeners))
		}
		for _, l := range s.Listeners {
			say1(conditions(l.Conditions, g.Generation))
		}
	}
	for _, o := range objects {
		r, ok := o.(*gatewayv1.HTTPRoute)
		if !ok {
			continue
		}
		want := 0
		for _, p := range r.Spec.ParentRefs {
			namespace := r.Namespace
			if p.Namespace != nil {
				namespace = string(*p.Namespace)
			}
			if (p.Kind == nil || *p.Kind == "Gateway") && (p.Group == nil || *p.Group == gatewayv1.GroupName) && gateways[[2]string{namespace, string(p.Name)}] {
				want++
			}
		}
		s, _ := statuses[admit.Key(r)].Value.(*gatewayv1.HTTPRouteStatus)
		if s == nil {
			s = &gatewayv1.HTTPRouteStatus{}
		}
		if len(s.Parents) < want {
			say(r, "%d parents, want at least %d", len(s.Parents), want)
		}
		for _, p := range s.Parents {
			if err := conditions(p.Conditions, r.Generation); err != nil {
				say(r, "%v", err)
			}
		}
	}
	return errors.Join(errs...)
}

// conditions: there are some, of the right generation.
func conditions(list []metav1.Condition, generation int64) error {
	if len(list) == 0 {
		return errors.New("there are no conditions")
	}
	for _, c := range list {
		if c.ObservedGeneration != generation {
			return fmt.Errorf("condition %s is of generation %d, want %d", c.Type, c.ObservedGeneration, generation)
		}
	}
	return nil
}

// writable: an API server takes every status as it is.
func writable(all map[string]definition, statuses map[object.Key]routing.Status) error {
	var errs []error
	for k, s := range statuses {
		d, ok := all[string(k.Kind)]
		if s.Value == nil || !ok {
			continue
		}
		text, err := json.Marshal(s.Value)
		if err != nil {
			return err
		}
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		for _, m := range misfits(d.status, v, "status") {
			errs = append(errs, fmt.Errorf("%s: %s", k, m))
		}
	}
	return errors.Join(errs...)
}
