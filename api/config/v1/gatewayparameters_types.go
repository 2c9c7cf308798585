package configv1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatewayParameters says how a Gateway's proxies are run. Gateway.spec.infrastructure.parametersRef
// and, as default, GatewayClass.spec.parametersRef refer to it; the two are merged per
// field and the Gateway's wins, so an unset field is left unset by the API server and
// gets its default only after the merge.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=gatewayparameters,scope=Namespaced,singular=gatewayparameters
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayParameters struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GatewayParametersSpec `json:"spec,omitzero"`
}

// GatewayParametersList is a list of GatewayParameters.
//
// +kubebuilder:object:root=true
type GatewayParametersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayParameters `json:"items"`
}

// GatewayMode says whose proxies serve a Gateway.
//
// +kubebuilder:validation:Enum=Shared;Dedicated
type GatewayMode string

// The modes.
const (
	GatewayModeShared    GatewayMode = "Shared"
	GatewayModeDedicated GatewayMode = "Dedicated"
)

// RouteScopes says how a listener's routes are cut into scopes.
//
// +kubebuilder:validation:Enum=Auto;Single;PerHost
type RouteScopes string

// The ways to cut: by the number of hosts, all in one, one a host.
const (
	RouteScopesAuto    RouteScopes = "Auto"
	RouteScopesSingle  RouteScopes = "Single"
	RouteScopesPerHost RouteScopes = "PerHost"
)

// ServiceType is the type of a Gateway's Service.
//
// +kubebuilder:validation:Enum=LoadBalancer;ClusterIP
type ServiceType string

// The types.
const (
	ServiceTypeLoadBalancer ServiceType = "LoadBalancer"
	ServiceTypeClusterIP    ServiceType = "ClusterIP"
)

// TrafficPolicy says whether a node sends external traffic to pods of other nodes.
//
// +kubebuilder:validation:Enum=Cluster;Local
type TrafficPolicy string

// The policies.
const (
	TrafficPolicyCluster TrafficPolicy = "Cluster"
	TrafficPolicyLocal   TrafficPolicy = "Local"
)

// ProxyProtocolMode says whether connections begin with a PROXY header.
//
// +kubebuilder:validation:Enum=Off;Accept;Require
type ProxyProtocolMode string

// The modes: never, if there is one, always.
const (
	ProxyProtocolOff     ProxyProtocolMode = "Off"
	ProxyProtocolAccept  ProxyProtocolMode = "Accept"
	ProxyProtocolRequire ProxyProtocolMode = "Require"
)

// TLSVersion is a version of TLS.
//
// +kubebuilder:validation:Enum="1.2";"1.3"
type TLSVersion string

// The versions.
const (
	TLS12 TLSVersion = "1.2"
	TLS13 TLSVersion = "1.3"
)

// CIDR is a range of IPv4 or IPv6 addresses.
//
// +kubebuilder:validation:Format=cidr
// +kubebuilder:validation:MaxLength=64
type CIDR string

// GatewayParametersSpec is the wish. Defaults in the comments are those after the merge.
//
// +kubebuilder:object:generate=true
type GatewayParametersSpec struct {
	// Shared: the release's shared pool. Dedicated: proxies of its own. Default Shared.
	// +optional
	Mode *GatewayMode `json:"mode,omitempty"`

	// The Service in front of the Gateway.
	// +optional
	Service *GatewayService `json:"service,omitempty"`

	// Proxies of a dedicated Gateway; without effect on a shared one.
	// +optional
	Dedicated *DedicatedProxies `json:"dedicated,omitempty"`

	// What is expected of clients.
	// +optional
	Clients *ClientPolicy `json:"clients,omitempty"`

	// Seconds that connections have to end when a proxy of a dedicated Gateway stops or
	// replaces a filter chain; without effect on a shared one, as Envoy has one such time
	// for all of its listeners. Default 600.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	DrainSeconds *int32 `json:"drainSeconds,omitempty"`

	// Auto: one scope up to 200 hosts a listener, above that a scope for each host.
	// Single and PerHost pin it. Default Auto.
	// +optional
	RouteScopes *RouteScopes `json:"routeScopes,omitempty"`
}

// GatewayService is the Service in front of a Gateway.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'ClusterIP' || !has(self.loadBalancerClass) || size(self.loadBalancerClass) == 0",message="loadBalancerClass needs type LoadBalancer"
type GatewayService struct {
	// Default LoadBalancer.
	// +optional
	Type *ServiceType `json:"type,omitempty"`

	// Annotations of the Service. Default none.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// Default Cluster.
	// +optional
	ExternalTrafficPolicy *TrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// Default empty: the cluster's own.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
}

// DedicatedProxies are the proxies of one Gateway.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="replicas and autoscaling exclude each other"
type DedicatedProxies struct {
	// A fixed number of proxies. Default 2, unless autoscaling is set.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`

	// A number of proxies that follows their load.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`

	// Additions to the proxies' pods.
	// +optional
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`
}

// Autoscaling follows the CPU use of the proxies.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not exceed maxReplicas"
type Autoscaling struct {
	// Default 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// Default 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// Percent of the requested CPU. Default 70.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	TargetCPUUtilizationPercentage *int32 `json:"targetCPUUtilizationPercentage,omitempty"`
}

// PodTemplate lists all that may be added to a proxy's pod: nothing in it can give the
// pod a Secret, a host path or another identity.
//
// +kubebuilder:object:generate=true
type PodTemplate struct {
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('config.aether.io/') && !k.startsWith('gateway.networking.k8s.io/') && !k.startsWith('app.kubernetes.io/'))",message="labels of config.aether.io, gateway.networking.k8s.io and app.kubernetes.io are Aether's"
	Labels map[string]string `json:"labels,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('config.aether.io/'))",message="annotations of config.aether.io are Aether's"
	Annotations map[string]string `json:"annotations,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName *string `json:"priorityClassName,omitempty"`

	// Resources of the Envoy container.
	// +optional
	Resources *PodResources `json:"resources,omitempty"`

	// Environment added to both containers.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`
}

// PodResources are requests and limits of compute resources.
//
// +kubebuilder:object:generate=true
type PodResources struct {
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// +optional
	Limits corev1.ResourceList `json:"limits,omitempty"`
}

// EnvVar is a literal environment variable.
//
// +kubebuilder:object:generate=true
type EnvVar struct {
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][A-Za-z0-9_]*$`
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(AETHER|COXSWAIN|ENVOY|KUBERNETES|LD|NODE|POD)_') && self != 'GODEBUG'",message="the name is reserved"
	Name string `json:"name"`

	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}

// ClientPolicy is what a Gateway expects of its clients.
//
// +kubebuilder:object:generate=true
type ClientPolicy struct {
	// Number of proxies in front whose X-Forwarded-For entries are believed. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	TrustedHops *int32 `json:"trustedHops,omitempty"`

	// The PROXY protocol in front of each connection.
	// +optional
	ProxyProtocol *ProxyProtocol `json:"proxyProtocol,omitempty"`

	// Connections that a listener of one proxy holds at a time; 0 is no limit. Default 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConnectionLimit *int32 `json:"connectionLimit,omitempty"`

	// TLS of HTTPS and TLS listeners.
	// +optional
	TLS *ClientTLS `json:"tls,omitempty"`
}

// ProxyProtocol is the PROXY protocol, versions 1 and 2.
//
// +kubebuilder:object:generate=true
type ProxyProtocol struct {
	// Off: a PROXY header is an error of the client. Accept: read if present.
	// Require: a connection without one is closed. Default Off (in YAML write "Off", quoted).
	// +optional
	Mode *ProxyProtocolMode `json:"mode,omitempty"`

	// Addresses whose header is believed. Default none, which believes every peer.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	TrustedCIDRs []CIDR `json:"trustedCIDRs,omitempty"`
}

// ClientTLS is what is asked of a client's TLS.
//
// +kubebuilder:object:generate=true
type ClientTLS struct {
	// Default 1.2.
	// +optional
	MinVersion *TLSVersion `json:"minVersion,omitempty"`
}
