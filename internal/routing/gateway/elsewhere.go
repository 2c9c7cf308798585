package gateway

import (
	"slices"

	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
)

// MaxMutual is the number of HTTPS sections of a port up to which each knows the hosts of
// all the others, twice as many as a Gateway has by itself: every table of a port with n
// sections has n-1 such hosts, and a section that comes or goes changes them all.
const MaxMutual = 128

// markCrowds notes which accepted HTTPS sections share a port with too many others.
func markCrowds(list []Section) {
	on := map[key.Port]int{}
	for _, s := range list {
		if s.Secure && s.Accepted() {
			on[s.Table.Port]++
		}
	}
	for i := range list {
		s := &list[i]
		s.Crowded = s.Secure && s.Accepted() && on[s.Table.Port] > MaxMutual
	}
}

// Elsewhere is the hostnames, sorted, of the other HTTPS sections of the section's port: requests
// for them on a connection to this one are misdirected (Listener.hostname). Those that the
// section's own hostname covers are always named, for it would serve them otherwise; the
// rest is if there are not too many, and is not found if there are.
func Elsewhere(sections []Section, s Section) []string {
	if !s.Secure || !s.Accepted() {
		return nil
	}
	var list []string
	for _, o := range sections {
		if o.Table == s.Table || !o.Secure || !o.Accepted() || o.Table.Port != s.Table.Port {
			continue
		}
		if !s.Crowded || hostname.Covers(s.Host, o.Host) {
			list = append(list, o.Host)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
