package code

// The codes of what is found in MeshConfigs.
const (
	MeshUnknown ID = "AET4001"
	MeshInvalid ID = "AET4002"
	MeshName    ID = "AET4003"
	MeshIdle    ID = "AET4004"
	MeshAlone   ID = "AET4005"
)

func meshConfigs() []Code {
	return []Code{
		{
			ID: MeshUnknown, Severity: Error, Title: "a MeshConfig has a field that is not known",
			Meaning: "The object is accepted, since an older version must read what a newer one wrote, and the field has no effect, which is not what its author meant. The condition UnknownFields names it, and the API server warns who writes it.",
			Mend:    "Spell it as the message suggests, or take it out. If it is for a newer version that is yet to be installed, analyze with --ignore AET4001 until then.",
		},
		{
			ID: MeshInvalid, Severity: Error, Title: "a value of a MeshConfig is out of its range or of the wrong type",
			Meaning: "The object is refused as a whole. The version before it stays in effect: a typing error never turns anything back to its default.",
			Mend:    "Correct the value; ranges are in the reference, configuration.md.",
		},
		{
			ID: MeshName, Severity: Error, Title: "a MeshConfig is not called default",
			Meaning: "There is one MeshConfig in a namespace, and its name is default. Admission refuses any other, which would have no effect.",
			Mend:    "Name it default, or move it to the namespace that it is for.",
		},
		{
			ID: MeshIdle, Severity: Warning, Title: "a setting of a MeshConfig has no effect",
			Meaning: "It depends on another that is off, here or above: a rate of traces while tracing is off, traces without a collector. It takes effect when that changes.",
			Mend:    "Turn on what it depends on, or take it out. What is inherited is shown by aetherctl config get NAMESPACE --effective.",
		},
		{
			ID: MeshAlone, Severity: Info, Title: "a MeshConfig is in a namespace without a Gateway",
			Meaning: "Gateway proxies follow the MeshConfig of the Gateway's namespace, not of the routes' or the backends': this one concerns no proxy. That of the release namespace concerns all that inherit from it.",
			Mend:    "Put it into the namespace of the Gateway that is meant.",
		},
	}
}
