package code

// The codes of what is found while reading.
const (
	Unreadable ID = "AET0001"
	Refused    ID = "AET0002"
	Unknown    ID = "AET0003"
	NotRead    ID = "AET0004"
	Twice      ID = "AET0005"
	Absent     ID = "AET0006"
	Unlisted   ID = "AET0007"
	Dropped    ID = "AET0008"
	Uncoded    ID = "AET0099"
)

func reading() []Code {
	return []Code{
		{
			ID: Unreadable, Severity: Error, Title: "a file cannot be read as manifests",
			Meaning: "It is not YAML or JSON, or a document in it does not say which object it is. Nothing of the file is taken: neither kubectl nor standalone mode would take a part of it.",
			Mend:    "Correct the text at the line that is named. Each document needs apiVersion, kind and metadata.name.",
		},
		{
			ID: Refused, Severity: Error, Title: "an object breaks the rules of its definition",
			Meaning: "An API server would refuse it by the schema or a rule of its CustomResourceDefinition, and standalone mode does. The version before it stays in effect, if there was one.",
			Mend:    "Correct the field that is named; the message says what may be there.",
		},
		{
			ID: Unknown, Severity: Error, Title: "a field is not known",
			Meaning: "The object is taken without the field, so that what was meant by it has no effect: mostly it is misspelt or in the wrong place. Core objects and GatewayParameters are refused for it.",
			Mend:    "Spell the field as the message suggests, put it where it belongs, or take it out. A field of the Gateway API's experimental channel cannot be used.",
		},
		{
			ID: NotRead, Severity: Info, Title: "a document is of a kind that Aether does not read",
			Meaning: "Deployments and the like are not Aether's to read. If it is a route of another kind than HTTPRoute, nobody serves it.",
			Mend:    "Nothing need be done, unless Aether was expected to serve it.",
		},
		{
			ID: Twice, Severity: Error, Title: "an object is written twice",
			Meaning: "Of two documents of one kind, namespace and name the first is taken; which one a cluster has in the end is decided by who applies last.",
			Mend:    "Take one of them out, or give it another name or namespace.",
		},
		{
			ID: Absent, Severity: Info, Title: "what an object refers to is not among what is analyzed",
			Meaning: "It may be on the cluster, or in other files: the analysis goes on as if it were there and good, together with a ReferenceGrant if it is in another namespace. With --complete nothing is taken for granted, and what is not there is an error.",
			Mend:    "Analyze the files that have it too, or the cluster with -A. Check the name if it is nowhere.",
		},
		{
			ID: Unlisted, Severity: Info, Title: "a kind cannot be listed on the cluster",
			Meaning: "You lack the right to list it in all namespaces, or its definition is not installed. The analysis goes on as if what others refer to were there and good.",
			Mend:    "Ask for the right to list that kind (Secrets mostly), or install the definitions.",
			Scope:   Cluster,
		},
		{
			ID: Dropped, Severity: Warning, Title: "something of an object is dropped",
			Meaning: "An API server would take the object without what is named, as a namespace of an object that is in none.",
			Mend:    "Take it out.",
		},
		{
			ID: Uncoded, Severity: Warning, Title: "the controller would report a fault that has no code of its own",
			Meaning: "The analysis runs the controller's own routing graph; whatever that reports is told, by this code if by no other. The message is the condition as it would be in the object's status.",
			Mend:    "The message says what is wrong. Report that it has no code.",
		},
	}
}
