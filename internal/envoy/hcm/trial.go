package hcm

// keyEnd ends what the key builder takes of ScopeHeader: no key that it makes has one,
// whatever a client sends and whatever the miss path writes.
const keyEnd = ":"

// TrialKey is the key of a copy of the scope of that key, and by convention its name: one
// that Envoy checks as it checks every scope, and that no request finds. Any other
// character than keyEnd could come in a host, to which the header mutation gives a table.
func TrialKey(key string) string { return key + keyEnd + "trial" }
