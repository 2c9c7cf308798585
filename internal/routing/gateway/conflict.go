package gateway

import (
	"fmt"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
)

// markConflicts rejects sections that are not distinct from another one on their port.
// Of those of one object none wins. Between objects the first has precedence: the
// Gateway, then ListenerSets as they come; what it says to the others does not name it,
// which they may not be allowed to see. Sections that are rejected otherwise conflict
// with nothing and take nothing.
func markConflicts(list []Section) {
	taken := claims{ports: map[uint32]bool{}, hosts: map[claimed]bool{}}
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[to].Set == list[from].Set {
			to++
		}
		for i := from; i < to; i++ {
			taken.check(&list[i])
		}
		within(list[from:to])
		for i := from; i < to; i++ {
			taken.add(list[i])
		}
		from = to
	}
	markOverlaps(list)
	markCrowds(list)
}

// within marks what of one object is not distinct.
func within(list []Section) {
	protocols, hosts := map[uint32][2][]string{}, map[claimed][]string{}
	for _, s := range list {
		if !s.Accepted() {
			continue
		}
		of := protocols[s.Table.Port.Port]
		of[index(s.Secure)] = append(of[index(s.Secure)], s.Name)
		protocols[s.Table.Port.Port] = of
		hosts[claimed{s.Table.Port.Port, s.Host}] = append(hosts[claimed{s.Table.Port.Port, s.Host}], s.Name)
	}
	for i := range list {
		s := &list[i]
		if !s.Accepted() {
			continue
		}
		if others := protocols[s.Table.Port.Port][index(!s.Secure)]; len(others) > 0 {
			s.conflict(gatewayv1.ListenerReasonProtocolConflict, "the same port and another protocol as listener "+strings.Join(others, ", "))
		} else if alike := hosts[claimed{s.Table.Port.Port, s.Host}]; len(alike) > 1 {
			s.conflict(gatewayv1.ListenerReasonHostnameConflict, "the same port, protocol and hostname as listener "+strings.Join(without(alike, s.Name), ", "))
		}
	}
}

func (s *Section) conflict(reason gatewayv1.ListenerConditionReason, message string) {
	s.Rejected, s.Conflict = condition.Problemf(reason, "%s", message), true
}

func index(secure bool) int {
	if secure {
		return 1
	}
	return 0
}

func without(list []string, name string) []string {
	var out []string
	for _, n := range list {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

// claimed is a hostname on a bound port.
type claimed struct {
	port uint32
	host string
}

// claims is what objects of higher precedence have.
type claims struct {
	ports map[uint32]bool // secure or not
	hosts map[claimed]bool
}

// check rejects a ListenerSet's section for what is taken. One of a protocol that is not
// supported could not have shared the port whatever it is.
func (c claims) check(s *Section) {
	secure, there := c.ports[s.Table.Port.Port]
	unsupported := s.Rejected.Reason == string(gatewayv1.ListenerReasonUnsupportedProtocol)
	switch {
	case !there || !s.Accepted() && !unsupported || s.Set == key.Name{}:
	case unsupported || secure != s.Secure:
		s.conflict(gatewayv1.ListenerReasonProtocolConflict, "the same port and another protocol as a listener of the Gateway or of another ListenerSet")
	case c.hosts[claimed{s.Table.Port.Port, s.Host}]:
		s.conflict(gatewayv1.ListenerReasonHostnameConflict, "the same port, protocol and hostname as a listener of the Gateway or of another ListenerSet")
	}
}

func (c claims) add(s Section) {
	if s.Accepted() {
		c.ports[s.Table.Port.Port] = s.Secure
		c.hosts[claimed{s.Table.Port.Port, s.Host}] = true
	}
}

// maxNamed is the number of sections that a message names.
const maxNamed = 8

// markOverlaps notes which accepted HTTPS sections of a port have hostnames that overlap:
// only a wildcard can overlap with another hostname.
func markOverlaps(list []Section) {
	wildcards := map[uint32][]int{}
	for i, s := range list {
		if s.Secure && s.Accepted() && hostname.IsWildcard(s.Host) {
			wildcards[s.Table.Port.Port] = append(wildcards[s.Table.Port.Port], i)
		}
	}
	with := make([][]int, len(list))
	for i, s := range list {
		if !s.Secure || !s.Accepted() {
			continue
		}
		for _, w := range wildcards[s.Table.Port.Port] {
			if _, meet := hostname.Intersect(s.Host, list[w].Host); meet && w != i {
				with[i] = append(with[i], w)
				if !hostname.IsWildcard(s.Host) {
					with[w] = append(with[w], i)
				}
			}
		}
	}
	for i, others := range with {
		list[i].Overlap = named(list, list[i].Set, others)
	}
}

// named is the names of sections as those of one object may see them.
func named(list []Section, by key.Name, which []int) []string {
	var out []string
	foreign := 0
	for _, i := range which {
		switch {
		case list[i].Set != by:
			foreign++
		case len(out) < maxNamed:
			out = append(out, "listener "+list[i].Name)
		case len(out) == maxNamed:
			out = append(out, "more")
		}
	}
	if foreign > 0 {
		out = append(out, fmt.Sprintf("%d listeners of other objects", foreign))
	}
	return out
}
