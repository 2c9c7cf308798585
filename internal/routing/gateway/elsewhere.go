package gateway

import (
	"slices"

	"aether.io/aether/internal/routing/hostname"
)

// maxElsewhere is the number of hosts elsewhere that a table names even though it would
// never serve them, as many as a Gateway has by itself: with many ListenerSets every
// table of a port with n sections would be n hosts large.
const maxElsewhere = 64

// Elsewhere is the hostnames of the other HTTPS sections of the section's port: requests
// for them on a connection to this one are misdirected (Listener.hostname). Those that the
// section's own hostname covers are always named, for it would serve them otherwise; the
// rest is if there are not too many, and is not found if there are.
func Elsewhere(sections []Section, s Section) []string {
	if !s.Secure || !s.Accepted() {
		return nil
	}
	var covered, rest []string
	for _, o := range sections {
		switch {
		case o.Table == s.Table || !o.Secure || !o.Accepted() || o.Table.Port != s.Table.Port:
		case hostname.Covers(s.Host, o.Host):
			covered = append(covered, o.Host)
		default:
			rest = append(rest, o.Host)
		}
	}
	if len(rest) > maxElsewhere {
		rest = nil
	}
	return slices.Concat(covered, rest)
}
