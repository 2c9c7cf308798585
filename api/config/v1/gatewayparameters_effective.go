package configv1

// Defaults of GatewayParameters.
const (
	DefaultReplicas      int32 = 2
	DefaultMinReplicas   int32 = 2
	DefaultMaxReplicas   int32 = 10
	DefaultTargetCPU     int32 = 70  // percent
	DefaultDrainSeconds  int32 = 600 // seconds
	DefaultTLSMinVersion       = TLS12
	DefaultGatewayMode         = GatewayModeShared
	DefaultRouteScopes         = RouteScopesAuto
	DefaultServiceType         = ServiceTypeLoadBalancer
	DefaultTrafficPolicy       = TrafficPolicyCluster
	DefaultProxyProtocol       = ProxyProtocolOff
)

// EffectiveGatewayParameters merges what the GatewayClass and the Gateway refer to, each
// of which may be nil, and fills in the defaults. Each field is taken whole, lists and
// maps too: the Gateway's if it is set, else the GatewayClass's, else the default.
// Replicas and autoscaling are one choice: the Gateway's replaces the GatewayClass's other.
//
// In the result every pointer is set but for Replicas and Autoscaling, of which one is,
// and for the fields of PodTemplate, which have no defaults. It shares nothing.
func EffectiveGatewayParameters(class, gateway *GatewayParametersSpec) *GatewayParametersSpec {
	c, g := orZero(class).DeepCopy(), orZero(gateway).DeepCopy()
	return &GatewayParametersSpec{
		Mode:         pick(DefaultGatewayMode, g.Mode, c.Mode),
		Service:      effectiveService(orZero(c.Service), orZero(g.Service)),
		Dedicated:    effectiveDedicated(orZero(c.Dedicated), orZero(g.Dedicated)),
		Clients:      effectiveClients(orZero(c.Clients), orZero(g.Clients)),
		DrainSeconds: pick(DefaultDrainSeconds, g.DrainSeconds, c.DrainSeconds),
		RouteScopes:  pick(DefaultRouteScopes, g.RouteScopes, c.RouteScopes),
	}
}

func effectiveService(c, g *GatewayService) *GatewayService {
	return &GatewayService{
		Type:                  pick(DefaultServiceType, g.Type, c.Type),
		Annotations:           mapOf(g.Annotations, c.Annotations),
		ExternalTrafficPolicy: pick(DefaultTrafficPolicy, g.ExternalTrafficPolicy, c.ExternalTrafficPolicy),
		LoadBalancerClass:     pick("", g.LoadBalancerClass, c.LoadBalancerClass),
	}
}

func effectiveDedicated(c, g *DedicatedProxies) *DedicatedProxies {
	out := &DedicatedProxies{PodTemplate: effectivePod(orZero(c.PodTemplate), orZero(g.PodTemplate))}
	if g.Replicas != nil || g.Autoscaling == nil && c.Autoscaling == nil {
		out.Replicas = pick(DefaultReplicas, g.Replicas, c.Replicas)
		return out
	}
	cs, gs := orZero(c.Autoscaling), orZero(g.Autoscaling)
	out.Autoscaling = &Autoscaling{
		MinReplicas:                    pick(DefaultMinReplicas, gs.MinReplicas, cs.MinReplicas),
		MaxReplicas:                    pick(DefaultMaxReplicas, gs.MaxReplicas, cs.MaxReplicas),
		TargetCPUUtilizationPercentage: pick(DefaultTargetCPU, gs.TargetCPUUtilizationPercentage, cs.TargetCPUUtilizationPercentage),
	}
	return out
}

func effectivePod(c, g *PodTemplate) *PodTemplate {
	out := *c
	out.Labels = mapOf(g.Labels, c.Labels)
	out.Annotations = mapOf(g.Annotations, c.Annotations)
	out.NodeSelector = mapOf(g.NodeSelector, c.NodeSelector)
	if g.Tolerations != nil {
		out.Tolerations = g.Tolerations
	}
	if g.Affinity != nil {
		out.Affinity = g.Affinity
	}
	if g.TopologySpreadConstraints != nil {
		out.TopologySpreadConstraints = g.TopologySpreadConstraints
	}
	if g.PriorityClassName != nil {
		out.PriorityClassName = g.PriorityClassName
	}
	if g.Resources != nil {
		out.Resources = g.Resources
	}
	if g.Env != nil {
		out.Env = g.Env
	}
	return &out
}

func effectiveClients(c, g *ClientPolicy) *ClientPolicy {
	cp, gp := orZero(c.ProxyProtocol), orZero(g.ProxyProtocol)
	ct, gt := orZero(c.TLS), orZero(g.TLS)
	trusted := gp.TrustedCIDRs
	if trusted == nil {
		trusted = cp.TrustedCIDRs
	}
	return &ClientPolicy{
		TrustedHops:     pick(0, g.TrustedHops, c.TrustedHops),
		ProxyProtocol:   &ProxyProtocol{Mode: pick(DefaultProxyProtocol, gp.Mode, cp.Mode), TrustedCIDRs: trusted},
		ConnectionLimit: pick(0, g.ConnectionLimit, c.ConnectionLimit),
		TLS:             &ClientTLS{MinVersion: pick(DefaultTLSMinVersion, gt.MinVersion, ct.MinVersion)},
	}
}

// pick returns the first that is set, else the default.
func pick[T any](def T, first ...*T) *T {
	for _, p := range first {
		if p != nil {
			return p
		}
	}
	return &def
}

func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

func mapOf(gateway, class map[string]string) map[string]string {
	if gateway != nil {
		return gateway
	}
	return class
}
