package screen

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
)

// The rules are compiled in the environment that the API server compiles them in, but
// planned without its counting of costs, which is most of what evaluation costs there.

const selfName = "self"

// rule is one planned CEL rule. Evaluating it is safe from several goroutines at once.
type rule = interpreter.InterpretableV2

// planner plans the rules of one schema.
type planner struct {
	base *environment.EnvSet
	// The functions are those of the base environment in every extension of it.
	functions interpreter.Dispatcher
	patterns  map[string]*regexp.Regexp
}

func newPlanner() (*planner, error) {
	p := &planner{
		base:      environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()),
		functions: interpreter.NewDispatcher(),
		patterns:  map[string]*regexp.Regexp{},
	}
	for _, f := range p.base.StoredExpressionsEnv().Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, fmt.Errorf("bind function %s: %w", f.Name(), err)
		}
		if err := p.functions.Add(bindings...); err != nil {
			return nil, fmt.Errorf("bind function %s: %w", f.Name(), err)
		}
	}
	return p, nil
}

// rules plans those of s itself.
func (p *planner) rules(s *schema, root bool) ([]rule, error) {
	written := s.structural().XValidations
	if len(written) == 0 {
		return nil, nil
	}
	env, err := p.env(s.structural(), root)
	if err != nil {
		return nil, err
	}
	plan := interpreter.NewInterpreter(p.functions, env.Container, env.CELTypeProvider(), env.CELTypeAdapter(),
		interpreter.NewAttributeFactory(env.Container, env.CELTypeAdapter(), env.CELTypeProvider()))
	var out []rule
	for _, r := range written {
		if strings.TrimSpace(r.Rule) == "" {
			continue
		}
		ast, issues := env.Compile(r.Rule)
		if issues.Err() != nil {
			return nil, fmt.Errorf("rule %q: %w", r.Rule, issues.Err())
		}
		planned, err := plan.NewInterpretable(ast.NativeRep(), interpreter.Optimize(), interpreter.CompileRegexConstants(interpreter.MatchesRegexOptimization))
		if err != nil {
			return nil, fmt.Errorf("plan rule %q: %w", r.Rule, err)
		}
		out = append(out, planned)
	}
	return out, nil
}

// env is where rules of s are compiled.
func (p *planner) env(s *structural.Structural, root bool) (*cel.Env, error) {
	declared := model.SchemaDeclType(s, root)
	if declared == nil {
		return nil, fmt.Errorf("rules on a %q of which CEL has no type", s.Type)
	}
	declared = declared.MaybeAssignTypeName("selfType")
	set, err := p.base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(selfName, declared.CelType())},
		DeclTypes:         []*apicel.DeclType{declared},
	})
	if err != nil {
		return nil, fmt.Errorf("declare the types of rules: %w", err)
	}
	return set.StoredExpressionsEnv(), nil
}

// obeys reports whether every rule of n holds for v; one that cannot be evaluated does not.
func (w *walk) obeys(n *node, v any) (ok bool) {
	defer func() {
		if recover() != nil { // as cel.Program does: a rule may meet what it was not written for
			ok = false
		}
	}()
	w.self.value = common.UnstructuredToVal(v, n.schema)
	frame, err := interpreter.NewExecutionFrame(&w.self)
	if err != nil {
		return false
	}
	defer frame.Close()
	for _, r := range n.rules {
		if r.Exec(frame) != types.True {
			return false
		}
	}
	return true
}

// self resolves the one variable of a rule.
type self struct{ value ref.Val }

// ResolveName implements interpreter.Activation.
func (s *self) ResolveName(name string) (any, bool) { return s.value, name == selfName }

// Parent implements interpreter.Activation.
func (s *self) Parent() interpreter.Activation { return nil }
