package remote

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ErrNoController says that no replica of the controller can be asked.
var ErrNoController = errors.New("no controller can be asked")

// Pod is one pod of the installation.
type Pod struct {
	Namespace, Name string
	Ready           bool
	Running         bool   // its first container runs, so it may answer
	State           string // in a word or two: Ready, Pending, CrashLoopBackOff, Terminating
	Restarts        int    // of all its containers
	Container       string // whose log is worth reading
}

// read is a pod as it is told here. What its proxies' sidecar does is what counts, which is
// the first container that is restarted always.
func read(p *corev1.Pod) Pod {
	out := Pod{Namespace: p.Namespace, Name: p.Name, State: string(p.Status.Phase)}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			out.Ready, out.State = true, "Ready"
		}
	}
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	for _, c := range containers {
		out.Restarts += int(c.RestartCount)
		if !out.Ready && c.State.Waiting != nil && c.State.Waiting.Reason != "" {
			out.State = c.State.Waiting.Reason
		}
	}
	if len(containers) > 0 {
		out.Container, out.Running = containers[0].Name, containers[0].State.Running != nil
	}
	if !out.Ready && out.Running && out.State == string(corev1.PodRunning) {
		out.State = "not Ready"
	}
	if p.DeletionTimestamp != nil {
		out.State, out.Ready = "Terminating", false
	}
	return out
}

// choose finds the replica to ask.
func choose(all []Pod, holder, place string) (Pod, error) {
	slices.SortFunc(all, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
	for _, fits := range []func(Pod) bool{
		func(p Pod) bool { return p.Name == holder && p.Running },
		func(p Pod) bool { return p.Ready },
		func(p Pod) bool { return p.Running }, // it may say what it waits for
	} {
		if n := slices.IndexFunc(all, fits); n >= 0 {
			return all[n], nil
		}
	}
	if len(all) == 0 {
		return Pod{}, fmt.Errorf("%w: there is none in %s: is Aether installed there? (--release-namespace, --context)", ErrNoController, place)
	}
	var states []string
	for _, p := range all {
		states = append(states, fmt.Sprintf("%s is %s", p.Name, p.State))
	}
	return Pod{}, fmt.Errorf("%w: in %s %s; see kubectl logs --namespace %s %s", ErrNoController, place, strings.Join(states, ", "), all[0].Namespace, all[0].Name)
}
