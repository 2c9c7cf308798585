// Package review answers who a Kubernetes service account token stands for, by the API
// server's TokenReview and the pod that the token is bound to. It grants nothing: whether
// an identity may have something is for others to decide.
package review

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Audience is what a token must be made for.
const Audience = "coxswain-discovery"

const (
	callTimeout = 5 * time.Second
	keep        = 30 * time.Second // an answer is used again for this long at most
	maxKept     = 4096             // answers; of more, the oldest go
)

// The claims of a bound token, as TokenReview shows them.
const (
	usernamePrefix = "system:serviceaccount:"
	extraPodName   = "authentication.kubernetes.io/pod-name"
	extraPodUID    = "authentication.kubernetes.io/pod-uid"
)

// Config is what a Reviewer is made from.
type Config struct {
	Client *rest.Config     // required; its rights: create on tokenreviews, get on pods
	Now    func() time.Time // nil: time.Now
}

// Reviewer attests by TokenReview. It is safe for concurrent use.
type Reviewer struct {
	reviews authenticationclient.TokenReviewInterface
	pods    coreclient.PodsGetter
	now     func() time.Time
	running singleflight.Group // by the token's hash: several calls for one token are one

	mu     sync.Mutex // guards what follows
	kept   map[[sha256.Size]byte]answer
	oldest [][sha256.Size]byte // keys of kept, in the order in which they came
}

// answer is what became of a token, if that can be used again: not of what could not be
// known.
type answer struct {
	who   svid.Workload
	err   error // svid.ErrUnauthenticated, or nil
	until time.Time
}

// New checks c. It does not call the API.
func New(c Config) (*Reviewer, error) {
	if c.Client == nil {
		return nil, errors.New("a token reviewer needs a client configuration")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	reviews, err := authenticationclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of TokenReviews: %w", err)
	}
	pods, err := coreclient.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of pods: %w", err)
	}
	return &Reviewer{reviews: reviews.TokenReviews(), pods: pods, now: c.Now, kept: map[[sha256.Size]byte]answer{}}, nil
}

// Attest returns who the token stands for: a pod that exists, runs as the token's service
// account and has not finished. svid.ErrUnauthenticated if it stands for nobody; other
// errors say that it cannot be known now. An answer may be up to 30 s old.
func (r *Reviewer) Attest(ctx context.Context, token svid.Token) (svid.Workload, error) {
	if token.IsZero() { // which the API server calls a malformed request
		return svid.Workload{}, refused("it is empty")
	}
	hash := token.Hash()
	if a, known := r.recall(hash); known {
		return a.who, a.err
	}
	// One caller that goes away must not take the answer from the others.
	call := r.running.DoChan(string(hash[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*callTimeout)
		defer cancel()
		who, err := r.review(ctx, token)
		if err == nil || errors.Is(err, svid.ErrUnauthenticated) {
			r.remember(hash, answer{who: who, err: err, until: r.now().Add(keep)})
		}
		return who, err
	})
	select {
	case <-ctx.Done():
		return svid.Workload{}, ctx.Err()
	case done := <-call:
		who, _ := done.Val.(svid.Workload)
		return who, done.Err
	}
}

// review asks the API.
func (r *Reviewer) review(ctx context.Context, token svid.Token) (svid.Workload, error) {
	out, err := r.reviews.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Reveal(), Audiences: []string{Audience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return svid.Workload{}, fmt.Errorf("review token: %w", err)
	}
	who, err := bound(out.Status)
	if err != nil {
		return svid.Workload{}, err
	}
	pod, err := r.pods.Pods(who.Namespace).Get(ctx, who.Pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return svid.Workload{}, refused("its pod %s/%s does not exist", who.Namespace, who.Pod.Name)
	case err != nil:
		return svid.Workload{}, fmt.Errorf("look at pod %s/%s: %w", who.Namespace, who.Pod.Name, err)
	}
	who.Pod.Node = pod.Spec.NodeName
	return who, runs(pod, who)
}

// bound reads who an answer is about. Anything that is not there, or not as a token has
// it that is bound to a pod, is a refusal.
func bound(s authenticationv1.TokenReviewStatus) (svid.Workload, error) {
	switch {
	case !s.Authenticated:
		return svid.Workload{}, refused("the API server does not accept it: %s", s.Error)
	case !slices.Contains(s.Audiences, Audience): // without it the API server knows of no audiences
		return svid.Workload{}, refused("it is not for audience %s", Audience)
	}
	account, is := strings.CutPrefix(s.User.Username, usernamePrefix)
	namespace, name, whole := strings.Cut(account, ":")
	if !is || !whole {
		return svid.Workload{}, refused("%q is no service account", s.User.Username)
	}
	if err := spiffeid.CheckAccount(namespace, name); err != nil {
		return svid.Workload{}, refused("service account %q: %v", s.User.Username, err)
	}
	who := svid.Workload{Namespace: namespace, ServiceAccount: name}
	for key, into := range map[string]*string{extraPodName: &who.Pod.Name, extraPodUID: &who.Pod.UID} {
		values := s.User.Extra[key]
		if len(values) != 1 || values[0] == "" {
			return svid.Workload{}, refused("it is not bound to a pod")
		}
		*into = values[0]
	}
	return who, nil
}

// runs checks that a pod is the one that a token is bound to, and still runs.
func runs(pod *corev1.Pod, who svid.Workload) error {
	switch {
	case string(pod.UID) != who.Pod.UID:
		return refused("its pod %s/%s is another one now", who.Namespace, who.Pod.Name)
	case pod.Spec.ServiceAccountName != who.ServiceAccount:
		return refused("its pod runs as %s, not as %s", pod.Spec.ServiceAccountName, who.ServiceAccount)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return refused("its pod has finished: %s", pod.Status.Phase)
	}
	if err := who.Pod.Validate(); err != nil {
		return refused("its pod: %v", err)
	}
	return nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", svid.ErrUnauthenticated, fmt.Sprintf(format, args...))
}

func (r *Reviewer) recall(hash [sha256.Size]byte) (answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, known := r.kept[hash]
	return a, known && r.now().Before(a.until)
}

func (r *Reviewer) remember(hash [sha256.Size]byte, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.kept[hash]; !again {
		r.oldest = append(r.oldest, hash)
	}
	r.kept[hash] = a
	for len(r.oldest) > maxKept || len(r.oldest) > 0 && !r.now().Before(r.kept[r.oldest[0]].until) {
		delete(r.kept, r.oldest[0])
		r.oldest = r.oldest[1:]
	}
}
