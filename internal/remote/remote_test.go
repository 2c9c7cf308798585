package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"aether.io/aether/internal/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is an API server as far as an Installation asks one. It forwards ports by SPDY
// only, as old ones do.
type server struct {
	t         *testing.T
	pods      []corev1.Pod
	elsewhere []corev1.Pod // of dedicated Gateways
	holder    string
	refuse    map[string]int // status by what the path ends with
	answers   map[string]string
	closed    string // what is complained of when a port is opened; empty: it is answered

	mu      sync.Mutex // guards what follows
	asked   []string   // pods that were reached
	tunnels []httpstream.Connection
}

// start returns an installation that asks it.
func (s *server) start() *Installation {
	s.t.Helper()
	http := httptest.NewServer(s)
	s.t.Cleanup(func() {
		s.mu.Lock()
		for _, c := range s.tunnels {
			_ = c.Close()
		}
		s.mu.Unlock()
		http.Close()
	})
	i, err := New(Config{Client: &rest.Config{Host: http.URL, QPS: 100}, Context: "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for end, code := range s.refuse {
		if strings.HasSuffix(r.URL.Path, end) {
			reason := map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 401: metav1.StatusReasonUnauthorized}[code]
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "you may not",
			})
			return
		}
	}
	write := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/leases/aether-controller"):
		write(coordinationv1.Lease{
			TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"},
			Spec:     coordinationv1.LeaseSpec{HolderIdentity: &s.holder},
		})
	case strings.HasSuffix(path, "/aether-system/pods"):
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
		if strings.Contains(r.URL.Query().Get("labelSelector"), "component=controller") {
			list.Items = s.pods
		}
		write(list)
	case strings.HasSuffix(path, "/api/v1/pods"):
		write(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.elsewhere})
	case strings.HasSuffix(path, "/portforward") && r.Method == http.MethodPost:
		s.forward(w, r)
	default:
		http.Error(w, "no "+r.Method+" "+path, http.StatusBadRequest)
	}
}

// forward answers the port's HTTP requests itself.
func (s *server) forward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{protocol}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 2)
	tunnel := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(st httpstream.Stream, replied <-chan struct{}) error {
		go func() { <-replied; streams <- st }()
		return nil
	})
	if tunnel == nil {
		return
	}
	s.mu.Lock()
	s.tunnels = append(s.tunnels, tunnel)
	s.asked = append(s.asked, strings.Split(r.URL.Path, "/")[6])
	s.mu.Unlock()
	for range 2 {
		st := <-streams
		if st.Headers().Get(corev1.PortHeader) != "8083" {
			s.t.Errorf("port %s was asked for", st.Headers().Get(corev1.PortHeader))
		}
		if st.Headers().Get(corev1.StreamType) == corev1.StreamTypeError {
			_, _ = fmt.Fprint(st, s.closed)
			_ = st.Close()
			continue
		}
		if s.closed != "" {
			_ = st.Close()
			continue
		}
		go s.answer(st)
	}
}

func (s *server) answer(st httpstream.Stream) {
	buf := make([]byte, 4096)
	n, _ := st.Read(buf)
	path := strings.Fields(string(buf[:n]))[1]
	text := s.answers[path]
	_, _ = fmt.Fprintf(st, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

func replica(name string, change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "aether-system", Name: name}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "aether-controller", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	if change != nil {
		change(&p)
	}
	return p
}

func crashing(p *corev1.Pod) {
	p.Status.Conditions[0].Status = corev1.ConditionFalse
	p.Status.ContainerStatuses[0] = corev1.ContainerStatus{RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func ask(i *Installation) (inspect.Identity, error) {
	c := i.AskLeader()
	defer c.Close()
	var got inspect.Identity
	err := c.Get(context.Background(), inspect.IdentityPath, &got)
	return got, err
}

func TestTheReplicaThatLeadsIsAsked(t *testing.T) {
	for name, test := range map[string]struct {
		pods   []corev1.Pod
		holder string
		refuse map[string]int
		want   string
	}{
		"the holder of the Lease": {[]corev1.Pod{replica("a", nil), replica("b", nil)}, "b_1", nil, "b"},
		"one that is ready, if the holder is gone": {
			[]corev1.Pod{replica("a", crashing), replica("b", unready), replica("c", nil)}, "gone_1", nil, "c",
		},
		"one that is ready, if the Lease may not be read": {
			[]corev1.Pod{replica("a", nil), replica("b", nil)}, "b_1", map[string]int{"/leases/aether-controller": 403}, "a",
		},
		"one that runs, if none is ready": {[]corev1.Pod{replica("a", crashing), replica("b", unready)}, "", nil, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{t: t, pods: test.pods, holder: test.holder, refuse: test.refuse, answers: map[string]string{inspect.IdentityPath: `{"trustDomain":"example.test"}`}}
			got, err := ask(s.start())
			if err != nil || got.TrustDomain != "example.test" {
				t.Fatalf("got %+v, %v", got, err)
			}
			if len(s.asked) != 1 || s.asked[0] != test.want {
				t.Errorf("asked %v, want %s", s.asked, test.want)
			}
		})
	}
}

func TestWhatStandsInTheWayIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		server *server
		is     error
		want   []string
	}{
		"nothing is installed": {&server{}, ErrNoController, []string{"there is none in namespace aether-system of context test", "--release-namespace"}},
		"no replica runs": {
			&server{pods: []corev1.Pod{replica("a", crashing)}}, ErrNoController, []string{"a is CrashLoopBackOff", "kubectl logs --namespace aether-system a"},
		},
		"pods may not be listed": {
			&server{refuse: map[string]int{"/pods": 403}}, nil, []string{"needs the right to list pods in namespace aether-system", "you may not"},
		},
		"ports may not be forwarded": {
			&server{pods: []corev1.Pod{replica("a", nil)}, refuse: map[string]int{"/portforward": 403}}, nil,
			[]string{"needs the right to create pods/portforward in namespace aether-system", "you may not"},
		},
		"the credential is no good": {&server{refuse: map[string]int{"/pods": 401}}, nil, []string{"does not know you"}},
		"the API server is overrun": {&server{refuse: map[string]int{"/pods": 503}}, ErrUnreachable, []string{"proxies go on serving"}},
		"the API server has no etcd": {
			&server{refuse: map[string]int{"/pods": 500}}, ErrUnreachable, []string{"with an error of its own", "proxies go on serving"},
		},
		"nothing listens there": {
			&server{pods: []corev1.Pod{replica("a", nil)}, closed: "connection refused"}, nil, []string{"the pod's node says: connection refused"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.server.t = t
			_, err := ask(test.server.start())
			if err == nil || test.is != nil && !errors.Is(err, test.is) {
				t.Fatalf("got %v, want %v", err, test.is)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestProxiesOfDedicatedGatewaysAreForThoseWhoMaySeeThem(t *testing.T) {
	own := replica("web-coxswain-1", func(p *corev1.Pod) { p.Namespace = "shop" })
	for name, test := range map[string]struct {
		refuse map[string]int
		want   string
	}{
		"who may":     {nil, "[shop/web-coxswain-1]"},
		"who may not": {map[string]int{"/api/v1/pods": 403}, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := (&server{t: t, elsewhere: []corev1.Pod{own}, refuse: test.refuse}).start().Proxies(t.Context())
			names := []string{}
			for _, p := range got {
				names = append(names, p.Namespace+"/"+p.Name)
			}
			if err != nil || fmt.Sprint(names) != test.want {
				t.Errorf("got %v, %v, want %s", names, err, test.want)
			}
		})
	}
}

func TestAnAPIServerThatIsGoneIsSaidToBe(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	i, err := New(Config{Client: &rest.Config{Host: s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ask(i); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), s.URL) {
		t.Errorf("got %v", err)
	}
}
