//go:build cluster

package review_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"aether.io/aether/internal/attest/review"
	"aether.io/aether/internal/svid"
	"aether.io/aether/test/cluster/apiserver"
)

const namespace = "default"

// cluster is an API server in which a test makes accounts, pods and tokens.
type cluster struct {
	t    *testing.T
	core coreclient.CoreV1Interface
}

func (c cluster) account(name string) {
	c.t.Helper()
	if _, err := c.core.ServiceAccounts(namespace).Create(c.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c cluster) pod(name, account string) *corev1.Pod {
	c.t.Helper()
	pod, err := c.core.Pods(namespace).Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, NodeName: "node-1", AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return pod
}

// token is a token of an account, bound to a pod unless that is nil.
func (c cluster) token(account string, pod *corev1.Pod, audience string) svid.Token {
	c.t.Helper()
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != nil {
		req.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	out, err := c.core.ServiceAccounts(namespace).CreateToken(c.t.Context(), account, req, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return svid.TokenFromString(out.Status.Token)
}

func (c cluster) remove(pod string) {
	c.t.Helper()
	if err := c.core.Pods(namespace).Delete(c.t.Context(), pod, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		c.t.Fatal(err)
	}
}

func TestATokenStandsForARunningPodAndNothingElse(t *testing.T) {
	server := apiserver.Start(t)
	core, err := coreclient.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{t, core}
	c.account("web")
	c.account("other")
	pod := c.pod("web-1", "web")
	good := c.token("web", pod, review.Audience)

	// Each case has a reviewer of its own: what one has kept must not help another.
	attest := func(token svid.Token) (svid.Workload, error) {
		t.Helper()
		r, err := review.New(review.Config{Client: server.Config})
		if err != nil {
			t.Fatal(err)
		}
		return r.Attest(t.Context(), token)
	}
	who, err := attest(good)
	if err != nil {
		t.Fatal(err)
	}
	if who.Namespace != namespace || who.ServiceAccount != "web" || who.Pod.Name != "web-1" || who.Pod.UID != string(pod.UID) || who.Pod.Node != "node-1" {
		t.Errorf("it stands for %+v", who)
	}
	finished := c.pod("finished", "web")
	finishedToken := c.token("web", finished, review.Audience)
	if _, err := c.core.Pods(namespace).Patch(t.Context(), "finished", types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	gone := c.pod("gone", "web")
	goneToken := c.token("web", gone, review.Audience)
	c.remove("gone")
	replaced := c.pod("replaced", "web")
	replacedToken := c.token("web", replaced, review.Audience)
	c.remove("replaced")
	c.pod("replaced", "web")
	text := good.Reveal()
	for name, token := range map[string]svid.Token{
		"nothing":                             svid.TokenFromString(""),
		"a text that is no token":             svid.TokenFromString("x"),
		"a token whose signature was changed": svid.TokenFromString(text[:len(text)-8] + "AAAAAAAA"),
		"a token for the API server":          c.token("web", pod, "https://kubernetes.default.svc"),
		"a token for another audience":        c.token("web", pod, "somebody-else"),
		"a token that is bound to no pod":     c.token("web", nil, review.Audience),
		"a token of a pod that is gone":       goneToken,
		"a token of a pod that was replaced":  replacedToken,
		"a token of a pod that has finished":  finishedToken,
	} {
		_, err := attest(token)
		if !errors.Is(err, svid.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && token.Reveal() != "" && len(token.Reveal()) > 8 && strings.Contains(err.Error(), token.Reveal()) {
			t.Errorf("%s: the error tells the token", name)
		}
	}

	// What cannot be known is no refusal.
	r, err := review.New(review.Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Attest(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(apiserver.APIServer); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Attest(t.Context(), good); err != nil {
		t.Errorf("an answer that is seconds old is not used: %v", err)
	}
	late, err := review.New(review.Config{Client: server.Config, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Attest(t.Context(), good); err == nil || errors.Is(err, svid.ErrUnauthenticated) {
		t.Errorf("without an API server: %v", err)
	}
}
