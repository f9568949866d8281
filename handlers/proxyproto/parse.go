package proxyproto

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
)

const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"

	// MaxBytes1 is the longest header of version 1, CR LF included.
	MaxBytes1 = 107
	// DefaultMaxBytes bounds the body of a version 2 header, addresses and TLVs, where a configuration says nothing
	// else.
	DefaultMaxBytes = 4096

	maxBody   = 1<<16 - 1
	head2     = 16 // bytes of a version 2 header before its body
	pathBytes = 108
)

// Detect returns the version of the header that in begins with, ErrShort for bytes that may become one, and
// ErrNoHeader.
func Detect(in []byte) (version int, err error) {
	switch {
	case bytes.HasPrefix(in, []byte(signature2)):
		return 2, nil
	case bytes.HasPrefix(in, []byte(signature1)):
		return 1, nil
	case len(in) < len(signature2) && signature2[:len(in)] == string(in),
		len(in) < len(signature1) && signature1[:len(in)] == string(in):
		return 0, ErrShort
	}
	return 0, ErrNoHeader
}

// Parse returns the header that in begins with and how many bytes it took. maxBytes bounds the body of version 2; 0
// means DefaultMaxBytes. It borrows in until return, and the Header holds nothing of it. With ErrShort, n is how many
// bytes in must have before asking again makes sense. Every other error is final: ErrNoHeader or one with ErrBadHeader
// in its chain.
func Parse(in []byte, maxBytes int) (h *Header, n int, err error) {
	version, err := Detect(in)
	switch {
	case err != nil:
		return nil, len(in) + 1, err
	case version == 1:
		return parse1(in)
	case maxBytes == 0:
		maxBytes = DefaultMaxBytes
	}
	return parse2(in, maxBytes)
}

func parse1(in []byte) (*Header, int, error) {
	end := bytes.IndexByte(in[:min(len(in), MaxBytes1)], '\n')
	line := in[:min(len(in), MaxBytes1)]
	if end >= 0 {
		line = in[:end]
	}
	// A CR comes before LF and nowhere else, so that both sides of a proxy see the same line.
	if cr := bytes.IndexByte(line, '\r'); cr >= 0 && cr < len(line)-1 || end >= 0 && cr < 0 {
		return nil, 0, bad("line ends without CR LF")
	}
	switch {
	case end >= 0:
		h, err := parseLine(string(line[:end-1]))
		return h, end + 1, err
	case len(in) >= MaxBytes1:
		return nil, 0, fmt.Errorf("%w: a line of more than %d bytes", ErrTooLong, MaxBytes1)
	}
	return nil, len(in) + 1, ErrShort
}

func parseLine(line string) (*Header, error) {
	protocol, rest, more := strings.Cut(line[len(signature1):], " ")
	h := &Header{Version: 1}
	switch protocol {
	case "UNKNOWN": // and anything behind it
		return h, nil
	case "TCP4":
		h.Protocol = TCP4
	case "TCP6":
		h.Protocol = TCP6
	default:
		return nil, bad("a protocol of %q", protocol)
	}
	fields := strings.Split(rest, " ")
	if !more || len(fields) != 4 {
		return nil, bad("a line of %d fields", len(fields)+2)
	}
	var err error
	if h.Source, err = parseAddr(h.Protocol, fields[0], fields[2]); err != nil {
		return nil, err
	}
	if h.Destination, err = parseAddr(h.Protocol, fields[1], fields[3]); err != nil {
		return nil, err
	}
	return h, nil
}

func parseAddr(p Protocol, host, port string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Is4() != (p == TCP4) || addr.Zone() != "" {
		return netip.AddrPort{}, bad("%q is no address of %v", host, p)
	}
	n := 0
	for i := range len(port) {
		c := port[i]
		if c < '0' || c > '9' || i >= 5 || c == '0' && i == 0 && len(port) > 1 {
			n = -1
			break
		}
		n = n*10 + int(c-'0')
	}
	if port == "" || n < 0 || n > 65535 {
		return netip.AddrPort{}, bad("a port of %q", port)
	}
	return netip.AddrPortFrom(addr, uint16(n)), nil
}

func parse2(in []byte, maxBytes int) (*Header, int, error) {
	if len(in) < head2 {
		return nil, head2, ErrShort
	}
	command, protocol := in[12], Protocol(in[13])
	body := int(binary.BigEndian.Uint16(in[14:]))
	switch {
	case command>>4 != 2:
		return nil, 0, bad("version %d", command>>4)
	case command&15 > 1:
		return nil, 0, bad("command %d", command&15)
	case command&15 == 1 && !protocol.known(): // of a LOCAL connection the family is ignored
		return nil, 0, bad("family and transport %#02x", uint8(protocol))
	case body > maxBytes:
		return nil, 0, fmt.Errorf("%w: a body of %d bytes of at most %d", ErrTooLong, body, maxBytes)
	case command&15 == 1 && body < protocol.addressBytes():
		return nil, 0, bad("a body of %d bytes holds no addresses of %v", body, protocol)
	case len(in) < head2+body:
		return nil, head2 + body, ErrShort
	}
	n := head2 + body
	h := &Header{Version: 2}
	switch {
	case command&15 == 0:
		h.Local = true
		return h, n, nil
	case protocol == Unspecified:
		return h, n, nil
	}
	h.Protocol = protocol
	h.parseAddresses(in[head2:n])
	front := head2 + protocol.addressBytes()
	tail := bytes.Clone(in[front:n])
	var err error
	if h.TLVs, err = parseTLVs(tail); err != nil {
		return nil, 0, err
	}
	if err := verify(in[:front], tail, h.TLVs); err != nil {
		return nil, 0, err
	}
	return h, n, nil
}

func (h *Header) parseAddresses(body []byte) {
	switch h.Protocol {
	case TCP4, UDP4:
		h.Source = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body)), binary.BigEndian.Uint16(body[8:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom4([4]byte(body[4:])), binary.BigEndian.Uint16(body[10:]))
	case TCP6, UDP6:
		h.Source = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body)), binary.BigEndian.Uint16(body[32:]))
		h.Destination = netip.AddrPortFrom(netip.AddrFrom16([16]byte(body[16:])), binary.BigEndian.Uint16(body[34:]))
	case UnixStream, UnixDatagram:
		h.SourcePath, h.DestinationPath = path(body[:pathBytes]), path(body[pathBytes:2*pathBytes])
	}
}

// path is b to its first NUL.
func path(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
