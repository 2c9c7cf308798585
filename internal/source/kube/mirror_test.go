package kube

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
)

// reader is an intake and the mirror of one kind.
type reader struct {
	*intake
	*mirror
}

func ownCRDs(t *testing.T) *crd.Validator {
	t.Helper()
	v, err := crd.Own()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func read(t *testing.T, name object.Kind) reader {
	t.Helper()
	in := newIntake(1, time.Now)
	in.complete()
	all := kinds(types.NamespacedName{}, ownCRDs(t))
	i := slices.IndexFunc(all, func(k kind) bool { return k.Name == name })
	return reader{in, newMirror(all[i], in, nil, &past{})}
}

func (r reader) changes(t *testing.T) []object.Change {
	t.Helper()
	b := r.collect()
	if b == nil {
		return nil
	}
	return b.Changes
}

func TestAConfigMapThatNobodyCouldUseDoesNotReplaceWhatIsInEffect(t *testing.T) {
	r := read(t, object.ConfigMap)
	config := func(version, other, text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca", ResourceVersion: version},
			Data:       map[string]string{"other": other, authorities: text},
		}
	}
	// A ConfigMap without authorities is good for nothing that could be damaged.
	good := config("1", "x", "")
	delete(good.Data, authorities)
	if err := r.Replace([]any{good}, "5"); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object == nil || got[0].Refused != "" {
		t.Fatalf("a good one gave %+v", got)
	}
	if err := r.Update(config("6", "x", "no certificate")); err != nil {
		t.Fatal(err)
	}
	b := r.collect()
	if len(b.Changes) != 1 || b.Changes[0].Object != object.Object(good) || b.Changes[0].Refused == "" {
		t.Fatalf("a bad one gave %+v, want the good one and why", b.Changes)
	}
	if len(b.Problems) != 0 {
		t.Fatalf("problems %+v, though nobody need refer to it", b.Problems)
	}
	// Another bad version changes nothing of what is in effect, and what is not read changes nothing.
	if err := r.Update(config("7", "x", "nor this")); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != object.Object(good) {
		t.Fatalf("another bad one gave %+v", got)
	}
	if err := r.Update(config("8", "y", "nor this")); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 0 {
		t.Fatalf("an entry that is not read gave %+v", got)
	}
	if err := r.Delete(config("9", "y", "nor this")); err != nil {
		t.Fatal(err)
	}
	b = r.collect()
	if len(b.Changes) != 1 || b.Changes[0].Object != nil || len(b.Problems) != 0 {
		t.Fatalf("a deletion gave %+v", b)
	}
	if at := b.Mark.Positions["configmaps"]; at != 9 || b.Mark.Epoch != 1 {
		t.Errorf("mark %+v", b.Mark)
	}
}

// Whoever may write a Gateway of that namespace could else have it show the CA's certificate,
// and its key with it.
func TestTheContentOfTheWithheldSecretIsNotTakenIn(t *testing.T) {
	in := newIntake(1, time.Now)
	in.complete()
	all := kinds(types.NamespacedName{Namespace: "aether-system", Name: "ca"}, nil)
	r := reader{in, newMirror(all[slices.IndexFunc(all, func(k kind) bool { return k.Name == object.Secret })], in, nil, &past{})}
	secret := func(namespace string) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ca", ResourceVersion: "1"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": []byte("a"), "tls.key": []byte("b"), "ca.crt": []byte("c")},
		}
	}
	if err := r.Replace([]any{secret("aether-system"), secret("shop")}, "5"); err != nil {
		t.Fatal(err)
	}
	b := r.collect()
	if len(b.Problems) != 0 {
		t.Errorf("problems %+v, though nobody need refer to any", b.Problems)
	}
	for _, c := range b.Changes {
		if s, there := c.Object.(*corev1.Secret); c.Key.Namespace == "aether-system" && (!there || len(s.Data) > 0) {
			t.Errorf("handed out %+v", c.Object)
		}
	}
}

func TestAListIsComparedWithWhatIsKnown(t *testing.T) {
	r := read(t, object.Service)
	service := func(name, version, app string) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": app}},
		}
	}
	if err := r.Replace([]any{service("stays", "1", "c"), service("changes", "2", "c"), service("goes", "3", "c")}, "10"); err != nil {
		t.Fatal(err)
	}
	r.changes(t)
	touched := service("stays", "11", "c")
	touched.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	if err := r.Replace([]any{touched, service("changes", "12", "d")}, "13"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range r.changes(t) {
		what := "set "
		if c.Object == nil {
			what = "drop "
		}
		got = append(got, what+c.Key.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"drop goes", "set changes"}) {
		t.Errorf("changes %v", got)
	}
	if touched.ResourceVersion != "11" {
		t.Errorf("its version became %s", touched.ResourceVersion)
	}
	// Positions move without changes, and never back.
	if err := r.Bookmark("20"); err != nil {
		t.Fatal(err)
	}
	if b := r.collect(); b == nil || len(b.Changes) != 0 || b.Mark.Positions["services"] != 20 {
		t.Errorf("a bookmark gave %+v", b)
	}
	if err := r.Bookmark("19"); err != nil {
		t.Fatal(err)
	}
	if b := r.collect(); b != nil {
		t.Errorf("an older bookmark gave %+v", b)
	}
}

func TestEveryKindThatIsReadIsFollowed(t *testing.T) {
	var got []object.Kind
	for _, k := range kinds(types.NamespacedName{}, ownCRDs(t)) {
		got = append(got, k.Name)
		if !slices.Contains([]string{"", "discovery.k8s.io", "gateway.networking.k8s.io", "config.aether.io"}, k.Resource.Group) {
			t.Errorf("%s is of group %q", k.Name, k.Resource.Group)
		}
	}
	if !slices.Equal(got, object.Kinds()) {
		t.Errorf("kinds %v, want %v", got, object.Kinds())
	}
}
