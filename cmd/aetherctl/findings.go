package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/spelling"
	"aether.io/aether/internal/standalone/view"
)

// findings is what is known of objects and of the manifests.
type findings struct {
	docs     []inspect.StatusDocument
	idle     []string // objects without a status, that would have one if they had an effect
	settled  bool     // nothing is still being worked out
	problems []problem
	behind   []fleet.Proxy // proxies that do not run what they should
	cluster  bool          // there are no files, whose problems would tell of unknown fields
}

// unsettled is how long it is waited for what is still being worked out.
const unsettled = time.Second

// findings asks until all is settled, or for a while.
func (i *instance) findings(ctx context.Context) (findings, error) {
	var all inspect.Statuses
	// Exits: all is settled, it has taken long, nobody answers, or ctx is done.
	for began := time.Now(); ; {
		all = inspect.Statuses{}
		if err := i.controller.Get(ctx, inspect.StatusPath, &all); err != nil {
			return findings{}, err
		}
		if all.Settled || time.Since(began) > unsettled {
			break
		}
		select {
		case <-ctx.Done():
			return findings{}, ctx.Err()
		case <-time.After(unsettled / 20):
		}
	}
	f := findings{docs: all.Documents, idle: all.Idle, settled: all.Settled, cluster: i.cluster != nil}
	if err := i.controller.Get(ctx, inspect.ProblemsPath, &f.problems); err != nil {
		return f, err
	}
	var proxies []fleet.Proxy
	if err := i.controller.Get(ctx, inspect.ProxiesPath, &proxies); err != nil {
		return f, err
	}
	f.behind = keep(proxies, func(p fleet.Proxy) bool { return p.Laggard != "" })
	return f, nil
}

// toLookAt is what is wrong with objects and with files, a sentence each.
func (f findings) toLookAt() []string {
	var list []string
	for _, d := range f.docs {
		trouble := view.Trouble(d)
		if f.cluster {
			trouble = append(trouble, view.UnknownFields(d)...)
		}
		for _, t := range trouble {
			list = append(list, view.ObjectName(d)+": "+t)
		}
	}
	for _, o := range f.idle {
		why := "has no status yet"
		if f.settled {
			why = view.WhyIdle(o)
		}
		list = append(list, o+": "+why)
	}
	for _, p := range f.problems {
		if p.Severity != ignored {
			list = append(list, p.String())
		}
	}
	for _, p := range f.behind {
		list = append(list, fmt.Sprintf("proxy %s: is behind since %s: %s", p.ID, p.LaggardFrom.UTC().Format(time.RFC3339), p.Laggard))
	}
	return list
}

// unread is the documents that are none of ours.
func (f findings) unread() []string {
	var list []string
	for _, p := range f.problems {
		if p.Severity == ignored {
			list = append(list, p.String())
		}
	}
	return list
}

// query is which objects were asked for. What is empty does not matter.
type query struct{ kind, namespace, name string }

// ask reads a query from arguments as people type them: KIND, KIND NAME, KIND NAMESPACE/NAME,
// or Kind/namespace/name as tables print it.
func ask(args []string, namespace string) (query, error) {
	q := query{namespace: namespace}
	if namespace != "" {
		if err := checkNamespace(namespace); err != nil {
			return q, fmt.Errorf("-n: %w", err)
		}
	}
	switch len(args) {
	case 0:
		return q, nil
	case 1:
		q.kind, q.name, _ = strings.Cut(args[0], "/")
	default:
		q.kind, q.name = args[0], args[1]
	}
	if ns, name, both := strings.Cut(q.name, "/"); both {
		if namespace != "" && namespace != ns {
			return q, fmt.Errorf("%s is in another namespace than -n %s", strings.Join(args, " "), namespace)
		}
		q.namespace, q.name = ns, name
	}
	return q, nil
}

// checkNamespace refuses what no namespace can be called.
func checkNamespace(name string) error {
	if len(validation.ValidateNamespaceName(name, false)) == 0 {
		return nil
	}
	text := fmt.Sprintf("%q is not the name of a namespace", name)
	if lower := strings.ToLower(name); len(validation.ValidateNamespaceName(lower, false)) == 0 {
		text += "; did you mean " + lower + "?"
	}
	return errors.New(text)
}

func (q query) has(object string) bool {
	kind, namespace, name := parts(object)
	return (q.kind == "" || sameKind(kind, q.kind)) && (q.namespace == "" || q.namespace == namespace) && (q.name == "" || q.name == name)
}

// parts takes Kind/namespace/name or Kind/name apart.
func parts(object string) (kind, namespace, name string) {
	kind, name, _ = strings.Cut(object, "/")
	if ns, n, both := strings.Cut(name, "/"); both {
		return kind, ns, n
	}
	return kind, "", name
}

// objects are all that something is known of.
func (f findings) objects() []string {
	list := slices.Clone(f.idle)
	for _, d := range f.docs {
		list = append(list, view.ObjectName(d))
	}
	for _, p := range f.problems {
		if p.Object != "" && p.Severity != ignored {
			list = append(list, p.Object)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// pick chooses what q asks for; there must be something. Of a file that is not read it is
// not known which objects it has.
func (f findings) pick(q query) (findings, error) {
	if q == (query{}) {
		return f, nil
	}
	objects := f.objects()
	if q.kind != "" && !slices.ContainsFunc(objects, q.has) {
		return f, q.nothing(objects)
	}
	return findings{
		settled:  f.settled,
		cluster:  f.cluster,
		docs:     keep(f.docs, func(d inspect.StatusDocument) bool { return q.has(view.ObjectName(d)) }),
		idle:     keep(f.idle, q.has),
		problems: keep(f.problems, func(p problem) bool { return p.Severity != ignored && (p.Object == "" || q.has(p.Object)) }),
	}, nil
}

func keep[T any](list []T, is func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(v T) bool { return !is(v) })
}

// mostOffered bounds what is named in place of what is not there.
const mostOffered = 10

// nothing says that nothing is known of what q asks for, and of what something is.
func (q query) nothing(objects []string) error {
	var kinds, names []string
	for _, o := range objects {
		kind, namespace, name := parts(o)
		kinds = append(kinds, kind)
		if sameKind(kind, q.kind) {
			names = append(names, strings.TrimPrefix(namespace+"/"+name, "/"))
		}
	}
	slices.Sort(kinds)
	if kinds = slices.Compact(kinds); len(kinds) == 0 {
		return errors.New("no object has a status")
	}
	if len(names) == 0 {
		return q.noKind(kinds)
	}
	names = few(names)
	want := strings.Trim(q.namespace+"/"+q.name, "/")
	if q.name == "" {
		want = "in namespace " + q.namespace
	}
	return fmt.Errorf("no %s %s has a status; there are %s", q.kind, want, strings.Join(names, ", "))
}

// noKind says that nothing is known of objects of that kind, and of what kinds something is.
func (q query) noKind(kinds []string) error {
	some := strings.Join(kinds, ", ")
	var known []string
	for _, k := range object.Kinds() {
		if known = append(known, string(k)); sameKind(string(k), q.kind) {
			return fmt.Errorf("no object of kind %s has a status; of these some have: %s", q.kind, some)
		}
	}
	if like, near := spelling.Nearest(q.kind, known); near {
		return fmt.Errorf("there is no kind %s; did you mean %s? Of these some have a status: %s", q.kind, like, some)
	}
	return fmt.Errorf("nothing called %s has a status, or is known to be wrong; of these some have a status: %s", q.kind, some)
}

// few is what of a list is named.
func few(list []string) []string {
	if more := len(list) - mostOffered; more > 0 {
		return append(slices.Clone(list[:mostOffered]), fmt.Sprintf("%d more", more))
	}
	return list
}

// shortNames are what the definitions let people type for a kind.
func shortNames() map[string]string {
	return map[string]string{"gc": "gatewayclass", "gtw": "gateway", "lset": "listenerset", "btlspolicy": "backendtlspolicy", "mc": "meshconfig"}
}

// sameKind takes a kind as people type it: any case, singular or plural, or short.
func sameKind(kind, typed string) bool {
	kind, typed = strings.ToLower(kind), strings.ToLower(typed)
	return typed == kind || typed == kind+"s" || typed == kind+"es" || strings.TrimSuffix(kind, "y")+"ies" == typed || shortNames()[typed] == kind
}
