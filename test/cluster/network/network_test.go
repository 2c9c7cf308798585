package network

import (
	"net/netip"
	"testing"
)

func TestRangesOfAddressesAreApart(t *testing.T) {
	ranges := []netip.Prefix{Pods, Nodes, Pool, Services}
	reserved := netip.MustParsePrefix("198.18.0.0/15")
	for i, a := range ranges {
		if !reserved.Contains(a.Addr()) || a != a.Masked() {
			t.Errorf("%s is not a range of %s", a, reserved)
		}
		for _, b := range ranges[i+1:] {
			if a.Overlaps(b) {
				t.Errorf("%s and %s overlap", a, b)
			}
		}
	}
	for n := Node(1); n <= MaxNodes; n++ {
		if !Nodes.Contains(n.Address()) || !Pods.Overlaps(n.Pods()) {
			t.Errorf("%s is at %s with pods in %s", n.Name(), n.Address(), n.Pods())
		}
	}
	if !Services.Contains(DNS) || !Nodes.Contains(Host) {
		t.Errorf("the name server is at %s, the host at %s", DNS, Host)
	}
}
