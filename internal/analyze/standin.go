package analyze

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
)

// DefaultClass is the GatewayClass that the chart makes: manifests that lack it are complete.
const DefaultClass = "coxswain"

// documentation is an address that nobody has (RFC 5737).
const documentation = "192.0.2.1"

// standIn makes what is referred to and not given, so that the graph's verdict is about what
// is given. What is refused is stood in for too: that it is refused was told.
func (a *analysis) standIn() {
	for _, r := range a.refs {
		if _, there := a.objects[r.To]; there && !a.stood[r.To] {
			continue
		}
		if !a.refused[r.To] {
			if a.c.Complete && a.knows(r.To.Kind) {
				continue
			}
			a.tellAbsent(r)
		}
		a.make(r)
		if r.cross() {
			a.allow(r)
		}
	}
	if !a.knows(object.ReferenceGrant) {
		for _, r := range a.refs {
			if r.cross() {
				a.allow(r)
			}
		}
	}
	a.endpoints()
}

func (a *analysis) tellAbsent(r reference) {
	if r.To.Kind == object.GatewayClass && r.To.Name == DefaultClass {
		return
	}
	what := "the analysis takes it to be there and good"
	switch {
	case r.To.Kind == object.Gateway || r.To.Kind == object.ListenerSet:
		what = "whether it is Aether's, and has a listener for this, is not known"
	case r.To.Kind == object.GatewayClass:
		what = "the analysis takes it to be Aether's"
	case r.cross():
		what += fmt.Sprintf(", and a ReferenceGrant for it in namespace %s", r.To.Namespace)
	}
	a.say(r.From, code.Absent, r.Path, "%s is not among what is analyzed: %s", r.To, what)
}

// make makes what a reference leads to, or adds to it what this one needs of it.
func (a *analysis) make(r reference) {
	meta := metav1.ObjectMeta{Namespace: r.To.Namespace, Name: r.To.Name}
	old := a.objects[r.To]
	var o object.Object
	switch r.To.Kind {
	case object.GatewayClass:
		o = &gatewayv1.GatewayClass{ObjectMeta: meta, Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(a.c.ControllerName)}}
	case object.GatewayParameters:
		o = &configv1.GatewayParameters{ObjectMeta: meta}
	case object.Secret:
		chain, key := pair()
		o = &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeTLS, Data: map[string][]byte{
			corev1.TLSCertKey: chain, corev1.TLSPrivateKeyKey: key, trust.Key: chain,
		}}
	case object.ConfigMap:
		chain, _ := pair()
		o = &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{trust.Key: string(chain)}}
	case object.Service:
		s, is := old.(*corev1.Service)
		if !is {
			s = &corev1.Service{ObjectMeta: meta}
		}
		a.addPort(s, r)
		o = s
	default: // of it nothing can be guessed, or nobody refers to it
		return
	}
	a.objects[r.To], a.stood[r.To] = o, true
}

// addPort gives a Service that stands in the port that is asked for.
func (a *analysis) addPort(s *corev1.Service, r reference) {
	port := corev1.ServicePort{Port: r.Port, Name: "p" + strconv.Itoa(int(r.Port)), Protocol: corev1.ProtocolTCP}
	if p, is := a.objects[r.From].(*gatewayv1.BackendTLSPolicy); is {
		port.Port = 1 // which number it has is not known
		for _, t := range p.Spec.TargetRefs {
			port.Name = string(ptr.Deref(t.SectionName, "p1"))
		}
	}
	same := func(p corev1.ServicePort) bool { return p.Name == port.Name || p.Port == port.Port && port.Port != 1 }
	if port.Port > 0 && !slices.ContainsFunc(s.Spec.Ports, same) {
		s.Spec.Ports = append(s.Spec.Ports, port)
	}
}

// allow makes the ReferenceGrant that a reference needs.
func (a *analysis) allow(r reference) {
	k := object.Key{Kind: object.ReferenceGrant, Namespace: r.To.Namespace, Name: fmt.Sprintf("stand-in-%d", len(a.objects))}
	a.objects[k], a.stood[k] = &gatewayv1.ReferenceGrant{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		Spec: gatewayv1.ReferenceGrantSpec{
			From: []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: gatewayv1.Kind(r.From.Kind), Namespace: gatewayv1.Namespace(r.From.Namespace)}},
			To:   []gatewayv1.ReferenceGrantTo{{Kind: gatewayv1.Kind(r.To.Kind), Name: ptr.To(gatewayv1.ObjectName(r.To.Name))}},
		},
	}, true
}

// endpoints gives one to each Service for which a cluster would make some, or which stands in.
func (a *analysis) endpoints() {
	if a.c.Live && a.knows(object.EndpointSlice) {
		return
	}
	has := map[object.Key]bool{}
	var services []*corev1.Service
	for _, o := range a.objects {
		switch o := o.(type) {
		case *discoveryv1.EndpointSlice:
			has[object.Key{Kind: object.Service, Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}] = true
		case *corev1.Service:
			services = append(services, o)
		}
	}
	for _, s := range services {
		k := object.Key{Kind: object.Service, Namespace: s.Namespace, Name: s.Name}
		made := len(s.Spec.Selector) > 0 && !a.c.Standalone
		if has[k] || !made && !a.stood[k] && a.knows(object.EndpointSlice) {
			continue
		}
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: s.Namespace, Name: "stand-in-" + s.Name, Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{documentation}}},
		}
		for _, p := range s.Spec.Ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(p.Name), Port: ptr.To(cmp.Or(p.TargetPort.IntVal, p.Port)), Protocol: ptr.To(cmp.Or(p.Protocol, corev1.ProtocolTCP)),
			})
		}
		at := object.Key{Kind: object.EndpointSlice, Namespace: slice.Namespace, Name: slice.Name}
		a.objects[at], a.stood[at] = slice, true
	}
}

// pair is a certificate that stands in, with its key, as PEM: no client will ever see it.
var pair = sync.OnceValues(func() (chain, key []byte) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil // as if it were there and empty: the graph says so
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "stands in"}, DNSNames: []string{"stand-in.invalid"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
})
