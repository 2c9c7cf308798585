package screen

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apicel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// The rules are compiled in the environment that the API server compiles them in, but
// planned without its counting of costs, which is most of what evaluation costs there. In
// its place each rule has the most that it can cost, as the API server estimates it from the
// bounds of the schema, which values keep to before rules see them: what might cost more
// than the API server lets it does not pass.

const selfName = "self"

// rule is one planned CEL rule. Evaluating it is safe from several goroutines at once.
type rule struct {
	interpreter.InterpretableV2
	cost uint64 // at most, of one evaluation, in CEL's units
}

// costly reports whether the API server might refuse to evaluate a rule to its end.
func costly(rules []rule) bool {
	return slices.ContainsFunc(rules, func(r rule) bool { return r.cost > celconfig.PerCallLimit })
}

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
	env, declared, err := p.env(s.structural(), root)
	if err != nil {
		return nil, err
	}
	estimator := &library.CostEstimator{SizeEstimator: sizes{declared}}
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
		cost, err := env.EstimateCost(ast, estimator)
		if err != nil {
			return nil, fmt.Errorf("estimate the cost of rule %q: %w", r.Rule, err)
		}
		out = append(out, rule{planned, cost.Max})
	}
	return out, nil
}

// env is where rules of s are compiled, and the type of what they call self.
func (p *planner) env(s *structural.Structural, root bool) (*cel.Env, *apicel.DeclType, error) {
	declared := model.SchemaDeclType(s, root)
	if declared == nil {
		return nil, nil, fmt.Errorf("rules on a %q of which CEL has no type", s.Type)
	}
	declared = declared.MaybeAssignTypeName("selfType")
	set, err := p.base.Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0),
		EnvOptions:        []cel.EnvOption{cel.Variable(selfName, declared.CelType())},
		DeclTypes:         []*apicel.DeclType{declared},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("declare the types of rules: %w", err)
	}
	return set.StoredExpressionsEnv(), declared, nil
}

// sizes tells how large values of a type can be, by their path from it. It is what the API
// server has for the same.
type sizes struct{ of *apicel.DeclType }

// EstimateSize implements checker.CostEstimator.
func (s sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	if len(element.Path()) == 0 {
		return nil
	}
	at := s.of
	for _, name := range element.Path()[1:] { // the first is self
		switch name {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field, ok := at.Fields[name]
			if !ok {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Max: uint64(at.MaxElements)}
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// obeys reports whether every rule of n holds for v; one that cannot be evaluated does not,
// and neither does one after which the object's rules might have cost too much together.
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
		if w.spent += r.cost; w.spent > celconfig.RuntimeCELCostBudget || r.Exec(frame) != types.True {
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
