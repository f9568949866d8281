package lb

// Reason is why a packet was sent on, passed to the kernel, or dropped.
type Reason uint32

// Reasons, by what becomes of the packet.
const (
	Known     = Reason(balancerReasonREASON_KNOWN)      // to the server that the table of connections has
	Placed    = Reason(balancerReasonREASON_PLACED)     // to the server that the Maglev table has chosen
	ICMPError = Reason(balancerReasonREASON_ICMP_ERROR) // an error to the server that sent what it is about

	NotOurs   = Reason(balancerReasonREASON_NOT_OURS)   // to another MAC than the interface's
	NotIP     = Reason(balancerReasonREASON_NOT_IP)     // neither IPv4 nor IPv6
	VLANs     = Reason(balancerReasonREASON_VLANS)      // more than one VLAN tag
	Transport = Reason(balancerReasonREASON_PROTOCOL)   // neither TCP, UDP nor ICMP
	NoVIP     = Reason(balancerReasonREASON_NO_VIP)     // to something else than a VIP
	ICMPOther = Reason(balancerReasonREASON_ICMP_OTHER) // ICMP that is no error

	Runt       = Reason(balancerReasonREASON_RUNT)        // cut in front of its addresses
	Version    = Reason(balancerReasonREASON_VERSION)     // another version of IP than announced, or too short a header
	Fragment   = Reason(balancerReasonREASON_FRAGMENT)    // only the first has ports
	Length     = Reason(balancerReasonREASON_LENGTH)      // has no room for its headers, as it says
	Cut        = Reason(balancerReasonREASON_CUT)         // ends within its transport's header
	TTL        = Reason(balancerReasonREASON_TTL)         // its time to live is over
	Options    = Reason(balancerReasonREASON_OPTIONS)     // more than 4 IPv6 extension headers
	Quote      = Reason(balancerReasonREASON_QUOTE)       // an ICMP error that does not show what it is about
	NoServer   = Reason(balancerReasonREASON_NO_SERVER)   // the VIP has none that could take it
	ServerDown = Reason(balancerReasonREASON_SERVER_DOWN) // the one chosen went down just now
	TooBig     = Reason(balancerReasonREASON_TOO_BIG)     // the outer header of a tunnel does not fit into the MTU
	Headroom   = Reason(balancerReasonREASON_HEADROOM)    // the driver has left no room for the outer header

	reasons = Reason(balancerReasonREASONS)
)

// Verdict is what becomes of a packet.
type Verdict uint8

// Verdicts.
const (
	Sent Verdict = iota
	Passed
	Dropped
)

// String returns the verdict's name.
func (v Verdict) String() string { return [...]string{"sent", "passed", "dropped"}[v] }

// Verdict returns what becomes of a packet for this reason.
func (r Reason) Verdict() Verdict {
	switch {
	case r < NotOurs:
		return Sent
	case r < Runt:
		return Passed
	}
	return Dropped
}

// String returns the reason in words.
func (r Reason) String() string {
	if r >= reasons {
		return "unknown"
	}
	return [...]string{
		"known", "placed", "icmp error", "not ours", "not ip", "vlans", "transport", "no vip", "icmp other", "runt",
		"version", "fragment", "length", "cut", "ttl", "options", "quote", "no server", "server down", "too big", "headroom",
	}[r]
}

// Counters are of packets since the VIP or the server was added.
type Counters struct {
	Packets uint64
	Bytes   uint64 // of IP
	Placed  uint64 // packets for which the Maglev table was asked: of new connections, and of those not remembered
}

// Stats is what a Balancer has done.
type Stats struct {
	Reasons map[Reason]uint64 // packets; those that are not zero
	VIPs    []VIPStats        // in no particular order
}

// VIPStats is a VIP's share.
type VIPStats struct {
	VIP
	Counters
	Servers []ServerStats
}

// ServerStats is a server's share.
type ServerStats struct {
	Server
	Counters
	State State
	// Up reports whether packets are sent to it: its MAC is known and its checks succeed.
	Up bool
}
