package code

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// The codes of what is found by lints of policies, grants and parameters, beside conditions.
const (
	PolicyUnused     ID = "AET3005"
	GrantUnused      ID = "AET3101"
	ParametersUnused ID = "AET3102"
)

func policies() []Code {
	const accepted, resolved = "Accepted", "ResolvedRefs"
	policy := object.BackendTLSPolicy
	return []Code{
		{
			ID: "AET3001", Severity: Error, Title: "the target of a BackendTLSPolicy does not exist",
			Meaning: "There is no such Service in its namespace, or the Service has no port of that name. The policy protects nothing.",
			Mend:    "Correct name or sectionName of the targetRef.",
			From:    []Condition{{policy, accepted, string(gatewayv1.PolicyReasonTargetNotFound)}},
		},
		{
			ID: "AET3002", Severity: Error, Title: "another BackendTLSPolicy has the same target",
			Meaning: "The older one counts, or the first by name if they are of one age.",
			Mend:    "Take one of them out, or give each a sectionName of its own.",
			From:    []Condition{{policy, accepted, string(gatewayv1.PolicyReasonConflicted)}},
		},
		{
			ID: "AET3003", Severity: Error, Title: "a BackendTLSPolicy cannot be followed",
			Meaning: "It has options, more than one target, subject names that are none, or authorities that are not known. Its target is never spoken to in plaintext instead: requests to it are answered with 500.",
			Mend:    "Correct what is named.",
			From:    []Condition{{policy, accepted, string(gatewayv1.PolicyReasonInvalid)}, {policy, accepted, ""}},
		},
		{
			ID: "AET3004", Severity: Error, Title: "the authorities of a BackendTLSPolicy cannot be used",
			Meaning: "caCertificateRefs leads to no ConfigMap or Secret with certificates under ca.crt. Requests to its target are answered with 500 if none of the references is good.",
			Mend:    "Name a ConfigMap of the policy's namespace whose ca.crt has PEM certificates.",
			From: []Condition{
				{policy, accepted, string(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate)}, {policy, resolved, ""},
			},
		},
		{
			ID: PolicyUnused, Severity: Info, Title: "no Gateway reaches the target of a BackendTLSPolicy",
			Meaning: "No route that is attached sends requests to its target, so the policy is not looked at: it has no status, whatever is wrong with it.",
			Mend:    "Nothing need be done, unless a route was expected to use it.",
		},
		{
			ID: GrantUnused, Severity: Info, Title: "nothing uses a ReferenceGrant",
			Meaning: "No reference that it allows is there. A grant that is not needed lets others use what is in its namespace whenever they like.",
			Mend:    "Take it out if it is not for something to come, and check its names if a reference is refused.",
			Scope:   Complete,
		},
		{
			ID: ParametersUnused, Severity: Info, Title: "nothing refers to GatewayParameters",
			Meaning: "Neither a Gateway nor a GatewayClass has a parametersRef to it: it has no effect.",
			Mend:    "Refer to it, or take it out.",
			Scope:   Complete,
		},
	}
}
