package kind

import (
	"slices"
	"strings"
)

// maxDetail is where Envoy cuts off the text of a refusal.
const maxDetail = 4096

// Blame reads from a refusal which resources of the response it is about, with what
// is said of each. Envoy names them for clusters and listeners, of which it applies
// the rest: "Error adding/updating cluster(s) a: …, b: …", listeners one a line. It returns nothing if the
// refusal names nothing or may have been cut off; then the whole response is in doubt.
func Blame(k Kind, sent []string, detail string) map[string]string {
	if k != Clusters && k != Listeners || len(detail) >= maxDetail {
		return nil
	}
	_, list, ok := strings.Cut(detail, "Error adding/updating "+k.String()+"(s) ")
	if !ok {
		return nil
	}
	type mark struct{ at, text int }
	var marks []mark
	names := map[int]string{}
	for _, n := range sent {
		for from := 0; ; { // Exits: no further occurrence
			i := strings.Index(list[from:], n+": ")
			if i < 0 {
				break
			}
			i += from
			if i == 0 || strings.HasSuffix(list[:i], ", ") || list[i-1] == '\n' {
				marks = append(marks, mark{at: i, text: i + len(n) + 2})
				names[i] = n
			}
			from = i + 1
		}
	}
	slices.SortFunc(marks, func(a, b mark) int { return a.at - b.at })
	if len(marks) == 0 || marks[0].at != 0 {
		return nil // begins with something that was not sent
	}
	out := map[string]string{}
	for i, m := range marks {
		end := len(list)
		if i+1 < len(marks) {
			end = marks[i+1].at
		}
		if _, dup := out[names[m.at]]; !dup {
			out[names[m.at]] = strings.TrimSuffix(strings.TrimSpace(list[m.text:end]), ",")
		}
	}
	return out
}

// Environmental reports whether a refusal is about the machine rather than about the
// content, so that the same content may be accepted later: a port or an address that
// is taken or not there yet, a file or a network namespace that is missing.
func Environmental(detail string) bool {
	return slices.ContainsFunc([]string{
		"cannot bind", "cannot listen", "has duplicate address",
		"failed to open netns", "failed to set netns",
		"Address already in use", "Cannot assign requested address", "Permission denied",
		"No such file or directory", "Operation not permitted", "Too many open files",
		"No space left on device", "Read-only file system", "Resource temporarily unavailable",
	}, func(s string) bool { return strings.Contains(detail, s) })
}
