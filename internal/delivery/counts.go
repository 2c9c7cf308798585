package delivery

import (
	"strings"

	configv1 "aether.io/aether/api/config/v1"
)

// filter chooses, of Envoy's statistics, those that Read takes: what becomes of requests to
// the collector, and the log records that were lost.
const filter = `^cluster\.aether-otel(-metrics)?\.(upstream_(cx|rq)_|endpoint\.|http2\.keepalive_timeout|ssl\.|client_ssl_socket_factory\.)` +
	`|^access_logs\.open_telemetry_access_log\..*\.logs_dropped$`

// counts is what became, since an Envoy began, of what it had to send by one cluster.
type counts struct {
	arrived uint64 // requests that were answered as they should be

	refused    uint64 // requests that were answered with an error, or whose connection failed
	unanswered uint64 // requests, and connections with requests, that were given up
	nowhere    uint64 // requests for which there was no address
	overflown  uint64 // requests for which there was no room
	lost       uint64 // log records

	unconnected   uint64 // connections that could not be made, for one of the reasons that follow or another
	noAuthorities uint64 // there is nothing to verify the collector by
	unverified    uint64 // its certificate is nobody's who is believed, or not valid now
	wrongName     uint64 // its certificate is for another name
	noTLS         uint64 // TLS failed for another reason
	babble        uint64 // connections on which something else than HTTP/2 was spoken
	cut           uint64 // connections that it closed on requests
}

// read takes the counts of one cluster out of statistics.
func read(stats map[string]uint64, cluster string) counts {
	own := "cluster." + cluster + "."
	c := counts{
		unanswered:    stats[own+"upstream_rq_max_duration_reached"] + stats[own+"upstream_rq_timeout"] + stats[own+"http2.keepalive_timeout"],
		nowhere:       stats[own+"upstream_cx_none_healthy"],
		overflown:     stats[own+"upstream_rq_pending_overflow"] + stats[own+"upstream_rq_active_overflow"],
		unconnected:   stats[own+"upstream_cx_connect_fail"],
		noAuthorities: stats[own+"client_ssl_socket_factory.upstream_context_secrets_not_ready"],
		unverified:    stats[own+"ssl.fail_verify_error"] + stats[own+"ssl.fail_verify_cert_hash"],
		wrongName:     stats[own+"ssl.fail_verify_san"],
		noTLS:         stats[own+"ssl.connection_error"],
		babble:        stats[own+"upstream_cx_protocol_error"],
		cut:           stats[own+"upstream_cx_destroy_remote_with_active_rq"],
	}
	for name, n := range stats {
		switch {
		case strings.HasPrefix(name, own+"endpoint."):
			if strings.HasSuffix(name, ".rq_success") {
				c.arrived += n
			}
			if strings.HasSuffix(name, ".rq_error") {
				c.refused += n
			}
		case strings.HasPrefix(name, "access_logs.") && cluster == exports:
			c.lost += n
		}
	}
	return c
}

// since is what came to be since other counts of the same Envoy. Those that have become
// less began anew: the Envoy, or the address that they are of, is another.
func (c counts) since(before counts) counts {
	less := func(now, then uint64) uint64 {
		if now < then {
			return now
		}
		return now - then
	}
	return counts{
		less(c.arrived, before.arrived),
		less(c.refused, before.refused), less(c.unanswered, before.unanswered), less(c.nowhere, before.nowhere),
		less(c.overflown, before.overflown), less(c.lost, before.lost),
		less(c.unconnected, before.unconnected), less(c.noAuthorities, before.noAuthorities), less(c.unverified, before.unverified),
		less(c.wrongName, before.wrongName), less(c.noTLS, before.noTLS), less(c.babble, before.babble), less(c.cut, before.cut),
	}
}

// plus is what came to be in two whiles together.
func (c counts) plus(d counts) counts {
	return counts{
		c.arrived + d.arrived,
		c.refused + d.refused, c.unanswered + d.unanswered, c.nowhere + d.nowhere,
		c.overflown + d.overflown, c.lost + d.lost,
		c.unconnected + d.unconnected, c.noAuthorities + d.noAuthorities, c.unverified + d.unverified,
		c.wrongName + d.wrongName, c.noTLS + d.noTLS, c.babble + d.babble, c.cut + d.cut,
	}
}

// outcome is what a while was like.
type outcome uint8

const (
	idle outcome = iota // nothing was to be sent, or nothing has become of it yet
	good
	bad
)

// tolerated is the share of requests that may fail in a while that is good still: one in as
// many. A collector that is restarted loses a few.
const tolerated = 10

func (c counts) outcome() outcome {
	failed := c.refused + c.unanswered + c.nowhere + c.overflown
	switch {
	case failed > 0 && failed*tolerated > c.arrived+failed:
		return bad
	case failed == 0 && c.lost > 0: // an error that HTTP does not know, as of who may send
		return bad
	case c.arrived > 0:
		return good
	}
	return idle
}

// cause is that which explains best what failed, the most particular first.
func (c counts) cause() Cause {
	switch {
	case c.noAuthorities > 0:
		return Cause{configv1.MeshConfigReasonCollectorCAMissing, "there are no authorities to verify it by"}
	case c.wrongName > 0:
		return Cause{configv1.MeshConfigReasonCollectorNotVerified, "its certificate is for another name"}
	case c.unverified > 0:
		return Cause{configv1.MeshConfigReasonCollectorNotVerified, "its certificate is of none of the authorities, or not valid now"}
	case c.noTLS > 0:
		return Cause{configv1.MeshConfigReasonCollectorNotVerified, "it does not speak TLS as it should"}
	case c.nowhere > 0:
		return Cause{configv1.MeshConfigReasonCollectorUnreachable, "its name does not resolve to an address"}
	case c.unconnected > 0:
		return Cause{configv1.MeshConfigReasonCollectorUnreachable, "it cannot be connected to"}
	case c.babble > 0:
		return Cause{configv1.MeshConfigReasonCollectorRefuses, "it does not speak OTLP over gRPC"}
	case c.unanswered > 0 || c.overflown > 0 && c.arrived == 0 && c.cut == 0 && c.refused <= c.overflown: // nothing comes back
		return Cause{configv1.MeshConfigReasonCollectorNotAnswering, "it does not answer in time"}
	case c.overflown > 0 && c.arrived > 0:
		return Cause{configv1.MeshConfigReasonCollectorOverloaded, "more is to be sent than it takes, and the rest is dropped"}
	case c.cut > 0:
		return Cause{configv1.MeshConfigReasonCollectorRefuses, "it closes connections without an answer, as one that wants TLS does"}
	}
	return Cause{configv1.MeshConfigReasonCollectorRefuses, "it answers with errors"}
}
