package configv1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MeshConfig is what the data plane of one namespace may override at run time. Its
// name is always default. A namespace without one, and each field that it leaves
// unset, inherits from the release namespace's MeshConfig, then from system config.
//
// +kubebuilder:object:root=true
// +kubebuilder:object:generate=false
// +kubebuilder:resource:path=meshconfigs,scope=Namespaced,shortName=mc
// +kubebuilder:subresource:status
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default'",message="a MeshConfig is named default"
// +kubebuilder:printcolumn:name="Projected",type=string,JSONPath=`.status.conditions[?(@.type=="Projected")].status`
// +kubebuilder:printcolumn:name="Applied",type=integer,JSONPath=`.status.proxies.applied`
// +kubebuilder:printcolumn:name="Of",type=integer,JSONPath=`.status.proxies.total`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MeshConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is nil when the object has none, which inherits everything.
	// In the CRD its fields are generated from the proto.
	//
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec *MeshConfigSpec `json:"spec,omitempty"`

	// UnknownFields lists the dotted paths under spec, sorted, of the fields that this
	// binary does not know (proxy.accessLogEnabled). Their values are dropped: an
	// object that is written back loses them, so write status or patches, never the whole.
	UnknownFields []string `json:"-"`

	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Status MeshConfigStatus `json:"status,omitzero"`
}

// MeshConfigList is a list of MeshConfigs.
//
// +kubebuilder:object:root=true
type MeshConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MeshConfig `json:"items"`
}

// The condition types of a MeshConfig.
const (
	// MeshConfigProjected says whether the spec is valid and in the projected ConfigMap.
	MeshConfigProjected = "Projected"
	// MeshConfigApplied says whether every proxy it concerns runs it.
	MeshConfigApplied = "Applied"
	// MeshConfigUnknownFields is true while the spec has fields that the controller does not know.
	MeshConfigUnknownFields = "UnknownFields"
	// MeshConfigTelemetryDelivered says whether what it has proxies send to the collector arrives
	// there. It is there only while it has them send something.
	MeshConfigTelemetryDelivered = "TelemetryDelivered"
)

// The reasons of those conditions.
const (
	MeshConfigReasonProjected     = "Projected"
	MeshConfigReasonInvalidConfig = "InvalidConfig"
	MeshConfigReasonApplyFailed   = "ApplyFailed"
	MeshConfigReasonProgressing   = "Progressing"
	MeshConfigReasonApplied       = "Applied"
	MeshConfigReasonRejected      = "Rejected"
	MeshConfigReasonUnknownFields = "UnknownFields"
	MeshConfigReasonNone          = "None"

	MeshConfigReasonDelivered             = "Delivered"
	MeshConfigReasonNothingSent           = "NothingSent"
	MeshConfigReasonCollectorUnreachable  = "CollectorUnreachable"
	MeshConfigReasonCollectorNotVerified  = "CollectorNotVerified"
	MeshConfigReasonCollectorNotAnswering = "CollectorNotAnswering"
	MeshConfigReasonCollectorRefuses      = "CollectorRefuses"
	MeshConfigReasonCollectorOverloaded   = "CollectorOverloaded"
	MeshConfigReasonCollectorCAMissing    = "CollectorCAMissing"
	MeshConfigReasonCollectorCAInvalid    = "CollectorCAInvalid"
	MeshConfigReasonCollectorCAExpired    = "CollectorCAExpired"
)

// MeshConfigStatus is what was observed of a MeshConfig.
//
// +kubebuilder:object:generate=true
type MeshConfigStatus struct {
	// Generation of the spec that the rest of the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Projected, Applied and UnknownFields.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The running proxy pods that this object concerns.
	// +optional
	Proxies *MeshConfigProxies `json:"proxies,omitempty"`

	// Every field of the spec with its value in effect and where that came from.
	// +optional
	Effective *MeshConfigEffective `json:"effective,omitempty"`
}

// MeshConfigProxies counts the proxies that a MeshConfig concerns.
//
// +kubebuilder:object:generate=true
type MeshConfigProxies struct {
	// Running proxy pods, connected or not; in standalone mode the proxies that are connected.
	Total int32 `json:"total"`
	// Those whose Envoy accepted the observed generation, and what it inherits.
	Applied int32 `json:"applied"`
	// Those that have not, the longest first.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	Laggards []MeshConfigLaggard `json:"laggards,omitempty"`
}

// MeshConfigLaggard is a proxy that does not run the observed generation.
//
// +kubebuilder:object:generate=true
type MeshConfigLaggard struct {
	// Name of the pod.
	Name string `json:"name"`
	// Generation that it runs, 0 if none or if that is not known.
	Generation int64 `json:"generation"`
	// When it fell behind.
	Since metav1.Time `json:"since"`
	// Why, as one word: Disconnected; NotAcknowledged, its Envoy has not answered; Pending,
	// it warms up; Rejected, its Envoy refuses it, or it is not valid.
	Reason string `json:"reason"`
}

// MeshConfigEffective mirrors the spec.
//
// +kubebuilder:object:generate=true
type MeshConfigEffective struct {
	Proxy MeshConfigEffectiveProxy `json:"proxy"`
}

// MeshConfigEffectiveProxy mirrors the spec's proxy.
//
// +kubebuilder:object:generate=true
type MeshConfigEffectiveProxy struct {
	AccessLogsEnabled          EffectiveBool   `json:"accessLogsEnabled"`
	AccessLogSuccessSampleRate EffectiveUint32 `json:"accessLogSuccessSampleRate"`
	TracingEnabled             EffectiveBool   `json:"tracingEnabled"`
	TraceSampleRate            EffectiveDouble `json:"traceSampleRate"`
	EmitStatsPod               EffectiveBool   `json:"emitStatsPod"`
}

// EffectiveBool is a value in effect and its origin: namespace/name of a MeshConfig,
// system, or default.
//
// +kubebuilder:object:generate=true
type EffectiveBool struct {
	Value bool   `json:"value"`
	From  string `json:"from"`
}

// EffectiveUint32 is like EffectiveBool.
//
// +kubebuilder:object:generate=true
type EffectiveUint32 struct {
	Value uint32 `json:"value"`
	From  string `json:"from"`
}

// EffectiveDouble is like EffectiveBool.
//
// +kubebuilder:object:generate=true
type EffectiveDouble struct {
	Value float64 `json:"value"`
	From  string  `json:"from"`
}
