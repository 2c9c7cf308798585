package envoy

import (
	"errors"
	"fmt"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/resource"
)

// Trial is a copy of a scope for Envoy to take or to refuse beside the scope itself: all
// of its content, under a name and a key that no request finds. Other resources have no
// such copy: a cluster would be connected to, a listener would bind.
func Trial(scope *resource.Resource) (*resource.Resource, error) {
	if scope.TypeURL != ScopedRouteType {
		return nil, fmt.Errorf("copy %s for a trial: %w", scope.Name, errors.New("only scopes can be copied"))
	}
	var m routev3.ScopedRouteConfiguration
	if err := proto.Unmarshal(scope.Payload, &m); err != nil {
		return nil, fmt.Errorf("copy %s for a trial: %w", scope.Name, err)
	}
	name := hcm.TrialKey(m.GetName())
	m.Name = name
	m.GetRouteConfiguration().Name = name
	m.Key = stringKey(name)
	return encode(name, &m, scope.Origin)
}

func stringKey(key string) *routev3.ScopedRouteConfiguration_Key {
	return &routev3.ScopedRouteConfiguration_Key{Fragments: []*routev3.ScopedRouteConfiguration_Key_Fragment{{
		Type: &routev3.ScopedRouteConfiguration_Key_Fragment_StringKey{StringKey: key},
	}}}
}
