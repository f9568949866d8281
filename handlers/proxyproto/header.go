package proxyproto

import (
	"errors"
	"fmt"
	"net/netip"
)

// What callers branch on.
var (
	// ErrConfig is returned for a configuration that makes no sense.
	ErrConfig = errors.New("proxyproto: bad configuration")
	// ErrShort is what Parse returns for bytes that may become a header. It is not a failure.
	ErrShort = errors.New("proxyproto: header is incomplete")
	// ErrNoHeader is what Parse returns for bytes that begin differently from a header.
	ErrNoHeader = errors.New("proxyproto: not a PROXY header")
	// ErrBadHeader is in the chain of errors about headers that break the rules.
	ErrBadHeader = errors.New("proxyproto: bad header")
	// ErrTooLong is returned for headers that are longer than allowed; ErrBadHeader is in its chain.
	ErrTooLong = fmt.Errorf("%w: too long", ErrBadHeader)
	// ErrChecksum is returned for headers whose CRC32C is wrong; ErrBadHeader is in its chain.
	ErrChecksum = fmt.Errorf("%w: wrong checksum", ErrBadHeader)
	// ErrEncode is returned for a Header that cannot be written.
	ErrEncode = errors.New("proxyproto: cannot encode")
)

// Protocol is the family and transport of the connection that is proxied, as version 2 writes them.
type Protocol uint8

const (
	Unspecified  Protocol = 0x00 // UNKNOWN in version 1
	TCP4         Protocol = 0x11 // TCP on IPv4
	UDP4         Protocol = 0x12 // UDP on IPv4; version 2 only, as all below but TCP6
	TCP6         Protocol = 0x21 // TCP on IPv6
	UDP6         Protocol = 0x22 // UDP on IPv6
	UnixStream   Protocol = 0x31 // a Unix stream socket
	UnixDatagram Protocol = 0x32 // a Unix datagram socket
)

// String returns the name, "TCP4" for example.
func (p Protocol) String() string {
	switch p {
	case Unspecified:
		return "UNKNOWN"
	case TCP4:
		return "TCP4"
	case UDP4:
		return "UDP4"
	case TCP6:
		return "TCP6"
	case UDP6:
		return "UDP6"
	case UnixStream:
		return "UNIX_STREAM"
	case UnixDatagram:
		return "UNIX_DGRAM"
	}
	return fmt.Sprintf("proxyproto.Protocol(%#02x)", uint8(p))
}

// addressBytes is how many bytes of a version 2 body are addresses.
func (p Protocol) addressBytes() int {
	switch p {
	case TCP4, UDP4:
		return 2*4 + 4
	case TCP6, UDP6:
		return 2*16 + 4
	case UnixStream, UnixDatagram:
		return 2 * pathBytes
	}
	return 0
}

func (p Protocol) known() bool { return p == Unspecified || p.addressBytes() > 0 }

// Header is who is at the other end of a proxied connection. One that was parsed holds nothing of the bytes it was
// parsed from; nobody changes it any more, so that any goroutine may read it.
type Header struct {
	// Version is 1 or 2.
	Version int
	// Local: the proxy speaks for itself, to check whether the server is well; the connection's own addresses count,
	// and the rest is zero. Version 1 cannot tell.
	Local    bool
	Protocol Protocol

	Source      netip.AddrPort // of TCP and UDP: the client
	Destination netip.AddrPort // and where it connected to

	SourcePath      string // of Unix sockets, up to 108 bytes, not the first NUL; empty for unnamed and abstract ones
	DestinationPath string

	TLVs []TLV // of version 2, in their order
}

// FromAddrs returns a Header of version 1 or 2 for a TCP connection from source to destination. IPv4 addresses inside
// of IPv6 count as IPv4; addresses of two families are written as IPv6. Zero addresses give an unspecified Protocol.
func FromAddrs(version int, source, destination netip.AddrPort) *Header {
	h := &Header{Version: version}
	if !source.IsValid() || !destination.IsValid() {
		return h
	}
	from, to := source.Addr().Unmap().WithZone(""), destination.Addr().Unmap().WithZone("")
	h.Protocol = TCP4
	if !from.Is4() || !to.Is4() {
		h.Protocol = TCP6
		from, to = netip.AddrFrom16(from.As16()), netip.AddrFrom16(to.As16())
	}
	h.Source, h.Destination = netip.AddrPortFrom(from, source.Port()), netip.AddrPortFrom(to, destination.Port())
	return h
}

// TLV returns the value of the first TLV of that type.
func (h *Header) TLV(t Type) (value []byte, ok bool) { return find(h.TLVs, t) }

// SSL returns what the proxy says about the client's TLS connection; false where it says nothing.
func (h *Header) SSL() (SSL, bool, error) {
	value, ok := h.TLV(TypeSSL)
	if !ok {
		return SSL{}, false, nil
	}
	s, err := parseSSL(value)
	return s, err == nil, err
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrBadHeader, fmt.Sprintf(format, args...))
}

func cannotEncode(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrEncode, fmt.Sprintf(format, args...))
}
