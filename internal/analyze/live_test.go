package analyze_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
)

const day = 24 * time.Hour

const class = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
`

const web = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners:
  - {name: http, protocol: HTTP, port: 80}
---
`

func analyzed(t *testing.T, c analyze.Config, documents []analyze.Document) []analyze.Finding {
	t.Helper()
	list, err := analyze.Run(c, documents)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func aClassThatGoes(t *testing.T) []analyze.Finding {
	documents := read(t, class+web)
	now := metav1.Now()
	for _, d := range documents {
		if d.Key.Kind == object.GatewayClass {
			d.Object.SetDeletionTimestamp(&now)
		}
	}
	return analyzed(t, config(code.Cluster), documents)
}

func aKindThatIsNotListed(t *testing.T) []analyze.Finding {
	c := config(code.Cluster)
	c.Unlisted = map[object.Kind]string{object.Secret: "forbidden"}
	return analyzed(t, c, read(t, class+web))
}

func aGatewayWithoutAnAddress(t *testing.T) []analyze.Finding {
	return analyzed(t, config(code.Cluster), read(t, class+web))
}

func aConditionWithoutACode(*testing.T) []analyze.Finding {
	return []analyze.Finding{analyze.Told(object.Key{Kind: object.Gateway, Namespace: "default", Name: "web"}, metav1.Condition{
		Type: "Sundry", Status: metav1.ConditionFalse, Reason: "NobodyKnows", Message: "something",
	})}
}

// aCertificate is a listener for shop.example.com with a certificate for a host that ends
// some time from now.
func aCertificate(t *testing.T, host string, left time.Duration) []analyze.Finding {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-100 * day), NotAfter: time.Now().Add(left)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, data []byte) string {
		return "    " + strings.ReplaceAll(strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}))), "\n", "\n    ") + "\n"
	}
	return run(t, config(code.Anywhere), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners:
  - {name: https, protocol: HTTPS, port: 443, hostname: shop.example.com, tls: {certificateRefs: [{name: shop}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: shop}
type: kubernetes.io/tls
stringData:
  tls.crt: |
%s  tls.key: |
%s`, block("CERTIFICATE", der), block("PRIVATE KEY", text)))
}

func TestAGoodCertificateIsNotTold(t *testing.T) {
	if list := aCertificate(t, "shop.example.com", 90*day); len(list) > 0 {
		t.Errorf("found %v", list)
	}
}
