// Package conformance_test is the Gateway API's own conformance suite with what is to be said
// of Aether. It is a module of its own: nothing else needs what the suite needs. It is built
// and run by test/conform, which has a cluster for it.
package conformance_test

import (
	"fmt"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// TestConformance runs the tests of all that the GatewayClass says is supported: no list of
// features or of tests is given, so nothing is left out that is claimed. Timeouts are
// the suite's own. What differs from run to run is in the suite's flags.
func TestConformance(t *testing.T) {
	options := conformance.DefaultOptions(t)
	options.GatewayClassName = "coxswain"
	options.ConformanceProfiles = []suite.ConformanceProfileName{suite.GatewayHTTPConformanceProfileName}
	options.Implementation = confv1.Implementation{
		Organization: "aether",
		Project:      "aether",
		URL:          "https://aether.io/aether",
		Version:      options.Implementation.Version,
		Contact:      []string{"https://aether.io/aether"},
	}
	// The testing package tells how a test ended when all have.
	options.Hook = func(t *testing.T, test suite.ConformanceTest, _ *suite.ConformanceTestSuite) {
		ended := "PASS"
		switch {
		case t.Failed():
			ended = "FAIL"
		case t.Skipped():
			ended = "SKIP"
		}
		fmt.Printf("\nconformance: %s %s\n", ended, test.ShortName)
	}
	conformance.RunConformanceWithOptions(t, options)
}
