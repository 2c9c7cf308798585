package manifest

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"aether.io/aether/internal/object"
)

// What follows is the part of the API server's defaults and validation of core types that
// matters to a gateway. Loopback endpoints, which an API server refuses, are allowed: on
// one machine they are where backends are.

// check collects findings.
type check []Finding

func (c *check) refuse(path, format string, args ...any) {
	*c = append(*c, Finding{Severity: Refused, Path: path, Message: fmt.Sprintf(format, args...)})
}

// valid refuses a value for each reason in problems.
func (c *check) valid(path string, value any, problems []string) {
	for _, p := range problems {
		c.refuse(path, "Invalid value: %q: %s", fmt.Sprint(value), p)
	}
}

func (c *check) oneOf(path, value string, supported ...string) {
	if !slices.Contains(supported, value) {
		c.refuse(path, "Unsupported value: %q: supported values: %s", value, strings.Join(supported, ", "))
	}
}

func admitNamespace(object.Object) []Finding { return nil }

func admitService(o object.Object) []Finding {
	var c check
	spec := &o.(*corev1.Service).Spec
	spec.Type = cmp.Or(spec.Type, corev1.ServiceTypeClusterIP)
	spec.SessionAffinity = cmp.Or(spec.SessionAffinity, corev1.ServiceAffinityNone)
	c.oneOf("spec.type", string(spec.Type), string(corev1.ServiceTypeClusterIP), string(corev1.ServiceTypeNodePort),
		string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeExternalName))
	if spec.Type == corev1.ServiceTypeExternalName {
		c.valid("spec.externalName", spec.ExternalName, validation.IsDNS1123Subdomain(strings.TrimSuffix(spec.ExternalName, ".")))
	}
	if len(spec.Ports) == 0 && spec.Type != corev1.ServiceTypeExternalName && spec.ClusterIP != corev1.ClusterIPNone {
		c.refuse("spec.ports", "Required value")
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		c.address("spec.clusterIP", spec.ClusterIP)
	}
	for i, ip := range spec.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			c.address(fmt.Sprintf("spec.clusterIPs[%d]", i), ip)
		}
	}
	for i, ip := range spec.ExternalIPs {
		c.address(fmt.Sprintf("spec.externalIPs[%d]", i), ip)
	}
	names, numbers := map[string]bool{}, map[string]bool{}
	for i := range spec.Ports {
		c.servicePort(fmt.Sprintf("spec.ports[%d]", i), &spec.Ports[i], len(spec.Ports) > 1, names, numbers)
	}
	return c
}

func (c *check) servicePort(at string, p *corev1.ServicePort, several bool, names, numbers map[string]bool) {
	p.Protocol = cmp.Or(p.Protocol, corev1.ProtocolTCP)
	if p.TargetPort == (intstr.IntOrString{}) || p.TargetPort == intstr.FromString("") {
		p.TargetPort = intstr.FromInt32(p.Port)
	}
	c.port(at+".port", p.Port)
	c.protocol(at+".protocol", p.Protocol)
	if p.TargetPort.Type == intstr.Int {
		c.port(at+".targetPort", p.TargetPort.IntVal)
	} else {
		c.valid(at+".targetPort", p.TargetPort.StrVal, validation.IsValidPortName(p.TargetPort.StrVal))
	}
	switch {
	case p.Name == "" && several:
		c.refuse(at+".name", "Required value: a Service of several ports names each")
	case p.Name != "":
		c.valid(at+".name", p.Name, validation.IsDNS1123Label(p.Name))
	}
	if p.Name != "" && names[p.Name] {
		c.refuse(at+".name", "Duplicate value: %q", p.Name)
	}
	names[p.Name] = true
	number := fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	if numbers[number] {
		c.refuse(at, "Duplicate value: %s", number)
	}
	numbers[number] = true
}

func admitEndpointSlice(o object.Object) []Finding {
	var c check
	slice := o.(*discoveryv1.EndpointSlice)
	if slice.AddressType == "" {
		c.refuse("addressType", "Required value")
	} else {
		c.oneOf("addressType", string(slice.AddressType), string(discoveryv1.AddressTypeIPv4), string(discoveryv1.AddressTypeIPv6), string(discoveryv1.AddressTypeFQDN))
	}
	if len(slice.Endpoints) > 1000 {
		c.refuse("endpoints", "Too many: %d: must have at most 1000 items", len(slice.Endpoints))
	}
	for i := range slice.Endpoints {
		at := fmt.Sprintf("endpoints[%d].addresses", i)
		if n := len(slice.Endpoints[i].Addresses); n == 0 || n > 100 {
			c.refuse(at, "must have 1 to 100 items, has %d", n)
		}
		for j, address := range slice.Endpoints[i].Addresses {
			c.endpoint(fmt.Sprintf("%s[%d]", at, j), slice.AddressType, address)
		}
	}
	names := map[string]bool{}
	for i := range slice.Ports {
		at, p := fmt.Sprintf("ports[%d]", i), &slice.Ports[i]
		if p.Name == nil {
			p.Name = new("")
		}
		if p.Protocol == nil {
			p.Protocol = new(corev1.ProtocolTCP)
		}
		c.protocol(at+".protocol", *p.Protocol)
		if p.Port != nil {
			c.port(at+".port", *p.Port)
		}
		if *p.Name != "" {
			c.valid(at+".name", *p.Name, validation.IsDNS1123Label(*p.Name))
		}
		if names[*p.Name] {
			c.refuse(at+".name", "Duplicate value: %q", *p.Name)
		}
		names[*p.Name] = true
	}
	return c
}

func (c *check) endpoint(at string, t discoveryv1.AddressType, address string) {
	if t == discoveryv1.AddressTypeFQDN {
		c.valid(at, address, validation.IsDNS1123Subdomain(address))
		return
	}
	ip := c.address(at, address)
	if ip.IsValid() && ip.Is4() != (t == discoveryv1.AddressTypeIPv4) {
		c.refuse(at, "Invalid value: %q: is not of addressType %s", address, t)
	}
}

func admitSecret(o object.Object) []Finding {
	var c check
	s := o.(*corev1.Secret)
	s.Type = cmp.Or(s.Type, corev1.SecretTypeOpaque)
	for key, value := range s.StringData { // as on a server, it wins over data
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
	size := 0
	for _, key := range sortedKeys(s.Data) {
		c.valid("data["+key+"]", key, validation.IsConfigMapKey(key))
		size += len(s.Data[key])
	}
	if size > corev1.MaxSecretSize {
		c.refuse("data", "Too long: must have at most %d bytes", corev1.MaxSecretSize)
	}
	if s.Type == corev1.SecretTypeTLS {
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := s.Data[key]; !ok {
				c.refuse("data["+key+"]", "Required value")
			}
		}
	}
	return c
}

// base64 names the entry that is not base64, which a decoding error does not.
func (r *reading) base64() {
	data, _ := r.doc.content["data"].(map[string]any)
	for _, key := range sortedKeys(data) {
		text, ok := data[key].(string)
		if !ok {
			continue // the decoding error says so
		}
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			r.refuse("data["+key+"]", "is not base64; plain text goes into stringData")
		}
	}
}

func admitConfigMap(o object.Object) []Finding {
	var c check
	m := o.(*corev1.ConfigMap)
	for _, key := range sortedKeys(m.Data) {
		c.valid("data["+key+"]", key, validation.IsConfigMapKey(key))
	}
	for _, key := range sortedKeys(m.BinaryData) {
		c.valid("binaryData["+key+"]", key, validation.IsConfigMapKey(key))
		if _, twice := m.Data[key]; twice {
			c.refuse("binaryData["+key+"]", "Duplicate value: is also in data")
		}
	}
	return c
}

func (c *check) port(path string, port int32) {
	c.valid(path, port, validation.IsValidPortNum(int(port)))
}

func (c *check) protocol(path string, p corev1.Protocol) {
	c.oneOf(path, string(p), string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP))
}

// address refuses what is not an IP address in its usual spelling.
func (c *check) address(path, text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil || ip.Zone() != "" || ip.Is4In6() {
		c.refuse(path, "Invalid value: %q: is not an IP address", text)
		return netip.Addr{}
	}
	return ip
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
