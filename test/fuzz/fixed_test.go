package fuzz_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"sync"
	"time"
)

// pair is a CA certificate and its key, in PEM.
var pair = sync.OnceValue(func() [2]string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"a.example.com"}, IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	return [2]string{
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
	}
})

func core(version, kind, namespace, name string, rest map[string]any) map[string]any {
	rest["apiVersion"], rest["kind"] = version, kind
	rest["metadata"] = map[string]any{"namespace": namespace, "name": name}
	return rest
}

// fixed are the objects that those of the definitions refer to: good ones, and broken ones.
func (g *generator) fixed() []map[string]any {
	cert, key := pair()[0], pair()[1]
	b64 := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	out := []map[string]any{
		{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": map[string]any{"name": "ours"}, "spec": map[string]any{
			"controllerName": controller, "parametersRef": map[string]any{"group": "config.aether.io", "kind": "GatewayParameters", "name": "ours", "namespace": release},
		}},
		core("config.aether.io/v1", "GatewayParameters", release, "ours", map[string]any{"spec": map[string]any{"routeScopes": pick(g, "Single", "PerHost", "Auto")}}),
	}
	for _, ns := range []string{"default", "other"} {
		out = append(out,
			core("v1", "Secret", ns, "cert", map[string]any{"type": "kubernetes.io/tls", "data": map[string]any{"tls.crt": b64(cert), "tls.key": b64(key)}}),
			core("v1", "Secret", ns, "broken", map[string]any{"type": "kubernetes.io/tls", "data": map[string]any{
				"tls.crt": b64(pick(g, "", "garbage", cert+"garbage", cert+cert, key)), "tls.key": b64(pick(g, "", "garbage", key, cert)),
			}}),
			core("v1", "Secret", ns, "ca", map[string]any{"data": map[string]any{"ca.crt": b64(cert)}}),
			core("v1", "ConfigMap", ns, "ca", map[string]any{"data": map[string]any{"ca.crt": pick(g, cert, cert+cert)}}),
			core("v1", "ConfigMap", ns, "cert", map[string]any{"data": map[string]any{"ca.crt": cert}}),
			core("v1", "ConfigMap", ns, "broken", map[string]any{"data": map[string]any{"ca.crt": pick(g, "", "garbage", key, cert+"garbage", "\x00")}}),
		)
		for _, name := range []string{"s0", "s1", "s2", "headless", "external"} {
			out = append(out, g.service(ns, name), g.slice(ns, name))
		}
	}
	return out
}

func (g *generator) service(namespace, name string) map[string]any {
	port := map[string]any{"port": 80, "name": "p"}
	if g.chance(40) {
		port["appProtocol"] = pick(g, "http", "https", "kubernetes.io/h2c", "kubernetes.io/ws", "kubernetes.io/wss", "tcp", "grpc", "example.com/x", "HTTP", "")
	}
	switch g.n(4) {
	case 0:
		port["targetPort"] = "named"
	case 1:
		port["targetPort"] = 65535
	}
	spec := map[string]any{"ports": []any{port, map[string]any{"port": 443, "name": "q"}}}
	switch name {
	case "headless":
		spec["clusterIP"] = "None"
	case "external":
		spec["type"], spec["externalName"] = "ExternalName", pick(g, "example.com", "example.com.", "127.0.0.1")
	}
	return core("v1", "Service", namespace, name, map[string]any{"spec": spec})
}

func (g *generator) slice(namespace, name string) map[string]any {
	family := pick(g, "IPv4", "IPv4", "IPv6", "FQDN")
	address := map[string][]string{"IPv4": {"127.0.0.1", "0.0.0.0", "255.255.255.255", "169.254.169.254"}, "IPv6": {"::1", "::", "fe80::1", "2001:db8::1"}, "FQDN": {"example.com"}}[family]
	endpoints := []any{}
	for range pick(g, 0, 1, 1, 2, 30) {
		e := map[string]any{"addresses": []any{pick(g, address...)}}
		if g.chance(50) {
			e["conditions"] = map[string]any{"ready": g.chance(60), "serving": g.chance(50), "terminating": g.chance(50)}
		}
		if g.chance(20) {
			e["zone"], e["hostname"], e["nodeName"] = "z", "h", "n"
		}
		endpoints = append(endpoints, e)
	}
	rest := map[string]any{"addressType": family, "endpoints": endpoints, "ports": []any{map[string]any{"name": "p", "port": pick(g, 1, 80, 65535)}, map[string]any{"name": "q"}}}
	out := core("discovery.k8s.io/v1", "EndpointSlice", namespace, name+"-x", rest)
	out["metadata"].(map[string]any)["labels"] = map[string]any{"kubernetes.io/service-name": name}
	return out
}
