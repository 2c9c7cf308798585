package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/routing/report"
)

// result is what the suite says of the core or the extended tests of a profile.
type result struct {
	Result     string `json:"result"`
	Statistics struct {
		Failed  int `json:"Failed"`
		Passed  int `json:"Passed"`
		Skipped int `json:"Skipped"`
	} `json:"statistics"`
	SupportedFeatures   []string `json:"supportedFeatures"`
	UnsupportedFeatures []string `json:"unsupportedFeatures"`
}

// check judges a report: every test of what is claimed passed, none was skipped, and what
// the suite took for claimed, from the GatewayClass, is what our table has of the profile.
func check(text []byte) error {
	var r struct {
		Profiles []struct {
			Name     string  `json:"name"`
			Core     result  `json:"core"`
			Extended *result `json:"extended"`
		} `json:"profiles"`
	}
	if err := yaml.Unmarshal(text, &r); err != nil {
		return err
	}
	if len(r.Profiles) == 0 {
		return errors.New("it has no profile")
	}
	var errs []error
	for _, p := range r.Profiles {
		errs = append(errs, p.Core.check(p.Name+", core"))
		if p.Extended == nil {
			errs = append(errs, fmt.Errorf("%s: no extended feature was tested", p.Name))
			continue
		}
		errs = append(errs, p.Extended.check(p.Name+", extended"), p.Extended.compare(p.Name, report.SupportedFeatures()))
	}
	return errors.Join(errs...)
}

func (r result) check(what string) error {
	if s := r.Statistics; r.Result != "success" || s.Failed > 0 || s.Skipped > 0 || s.Passed == 0 {
		return fmt.Errorf("%s: %s, %d passed, %d failed, %d skipped", what, r.Result, s.Passed, s.Failed, s.Skipped)
	}
	return nil
}

// compare holds what was tested against the table, as far as the profile has it.
func (r result) compare(profile string, table []gatewayv1.SupportedFeature) error {
	var claimed []string
	for _, f := range table {
		if name := string(f.Name); slices.Contains(r.SupportedFeatures, name) || slices.Contains(r.UnsupportedFeatures, name) {
			claimed = append(claimed, name)
		}
	}
	untested, unclaimed := without(claimed, r.SupportedFeatures), without(r.SupportedFeatures, claimed)
	if len(untested)+len(unclaimed) > 0 {
		return fmt.Errorf("%s: claimed and not tested: [%s], tested and not claimed: [%s]", profile, strings.Join(untested, " "), strings.Join(unclaimed, " "))
	}
	return nil
}
