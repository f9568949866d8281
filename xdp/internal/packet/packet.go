// Package packet builds frames for tests, whole and broken ones, and checks what programs have made of them.
package packet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// Numbers of protocols in IP.
const (
	ICMP  = 1
	TCP   = 6
	UDP   = 17
	ICMP6 = 58
)

// Flags of TCP.
const (
	FIN = 1
	SYN = 2
	RST = 4
	ACK = 16
)

// Ethertypes.
const (
	TypeIP4  = 0x0800
	TypeARP  = 0x0806
	TypeVLAN = 0x8100
	TypeIP6  = 0x86dd
)

// Frame says what a frame has. Lengths and checksums are filled in; the family is that of Src.
type Frame struct {
	DstMAC, SrcMAC   [6]byte
	VLANs            []uint16 // tags, outermost first
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
	Flags            uint8 // of TCP
	Type, Code       uint8 // of ICMP
	Rest             uint32
	TOS              uint8
	TTL              uint8       // 64 when zero; NoTTL for 0
	Options          []byte      // of IPv4, a multiple of 4 bytes
	Extensions       []Extension // of IPv6
	Fragment         uint16      // flags and offset as IPv4 has them
	Payload          []byte
}

// NoTTL is the TTL of a packet without one.
const NoTTL = 0xff

// Extension is a header of IPv6: its number and what stands behind the number of the next one.
type Extension struct {
	Number uint8
	Body   []byte
}

// Bytes returns the frame.
func (f Frame) Bytes() []byte {
	b := append(append([]byte{}, f.DstMAC[:]...), f.SrcMAC[:]...)
	for _, tag := range f.VLANs {
		b = binary.BigEndian.AppendUint16(b, TypeVLAN)
		b = binary.BigEndian.AppendUint16(b, tag)
	}
	if f.Src.Is4() {
		return append(binary.BigEndian.AppendUint16(b, TypeIP4), f.IP()...)
	}
	return append(binary.BigEndian.AppendUint16(b, TypeIP6), f.IP()...)
}

// IP returns the packet in the frame.
func (f Frame) IP() []byte {
	l4 := f.transport()
	ttl := f.TTL
	switch ttl {
	case 0:
		ttl = 64
	case NoTTL:
		ttl = 0
	}
	if f.Src.Is4() {
		header := 20 + len(f.Options)
		b := []byte{0x40 | byte(header/4), f.TOS}
		b = binary.BigEndian.AppendUint16(b, uint16(header+len(l4)))
		b = append(b, 0, 1)
		b = binary.BigEndian.AppendUint16(b, f.Fragment)
		b = append(b, ttl, f.Proto, 0, 0)
		b = append(append(append(b, f.Src.AsSlice()...), f.Dst.AsSlice()...), f.Options...)
		binary.BigEndian.PutUint16(b[10:], ^sum(0, b))
		return append(b, l4...)
	}
	next, extensions := f.Proto, []byte{}
	for i := len(f.Extensions) - 1; i >= 0; i-- {
		e := f.Extensions[i]
		extensions = append(append([]byte{next}, e.Body...), extensions...)
		next = e.Number
	}
	b := binary.BigEndian.AppendUint32(nil, 6<<28|uint32(f.TOS)<<20)
	b = binary.BigEndian.AppendUint16(b, uint16(len(extensions)+len(l4)))
	b = append(b, next, ttl)
	b = append(append(b, f.Src.AsSlice()...), f.Dst.AsSlice()...)
	return append(append(b, extensions...), l4...)
}

// transport returns the transport's header with its checksum, and the payload.
func (f Frame) transport() []byte {
	var b []byte
	at := 0
	switch f.Proto {
	case TCP:
		b = binary.BigEndian.AppendUint16(b, f.SrcPort)
		b = binary.BigEndian.AppendUint16(b, f.DstPort)
		b = append(b, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, f.Flags, 0xff, 0xff, 0, 0, 0, 0)
		at = 16
	case UDP:
		b = binary.BigEndian.AppendUint16(b, f.SrcPort)
		b = binary.BigEndian.AppendUint16(b, f.DstPort)
		b = binary.BigEndian.AppendUint16(b, uint16(8+len(f.Payload)))
		b = append(b, 0, 0)
		at = 6
	case ICMP, ICMP6:
		b = append(b, f.Type, f.Code, 0, 0)
		b = binary.BigEndian.AppendUint32(b, f.Rest)
		at = 2
	default:
		return f.Payload
	}
	b = append(b, f.Payload...)
	binary.BigEndian.PutUint16(b[at:], ^sum(pseudo(f.Src, f.Dst, f.Proto, len(b)), b))
	return b
}

// pseudo is the sum over the header that only checksums see. ICMP in IPv4 has none.
func pseudo(src, dst netip.Addr, proto uint8, length int) uint32 {
	if proto == ICMP {
		return 0
	}
	b := append(src.AsSlice(), dst.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return uint32(sum(uint32(proto), b))
}

// sum is the Internet checksum's (RFC 1071), not yet inverted.
func sum(start uint32, b []byte) uint16 {
	total := uint64(start)
	for ; len(b) > 1; b = b[2:] {
		total += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		total += uint64(b[0]) << 8
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	return uint16(total)
}

// Decoded is what Decode finds.
type Decoded struct {
	DstMAC, SrcMAC [6]byte
	VLAN           int // the tag; -1: none
	Src, Dst       netip.Addr
	Proto, TOS     uint8
	TTL            uint8
	Inner          []byte // what the IP packet carries
}

// ErrBroken is wrapped by every error of Decode.
var ErrBroken = errors.New("broken frame")

// Decode reads a frame with at most one tag and an IP packet without options, whose lengths have to be right and, in
// IPv4, its checksum.
func Decode(b []byte) (d Decoded, err error) {
	if len(b) < 14+20 {
		return d, fmt.Errorf("packet: %d bytes: %w", len(b), ErrBroken)
	}
	copy(d.DstMAC[:], b)
	copy(d.SrcMAC[:], b[6:])
	d.VLAN = -1
	kind, ip := binary.BigEndian.Uint16(b[12:]), b[14:]
	if kind == TypeVLAN {
		d.VLAN = int(binary.BigEndian.Uint16(b[14:]))
		kind, ip = binary.BigEndian.Uint16(b[16:]), b[18:]
	}
	switch {
	case kind == TypeIP4 && len(ip) >= 20 && ip[0] == 0x45:
		if length := int(binary.BigEndian.Uint16(ip[2:])); length < 20 || length > len(ip) || sum(0, ip[:20]) != 0xffff {
			return d, fmt.Errorf("packet: IPv4 of %d bytes says %d, header sums to %#x: %w",
				len(ip), length, sum(0, ip[:20]), ErrBroken)
		}
		d.TOS, d.TTL, d.Proto, d.Inner = ip[1], ip[8], ip[9], ip[20:]
		d.Src, d.Dst = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	case kind == TypeIP6 && len(ip) >= 40 && ip[0]>>4 == 6:
		if length := int(binary.BigEndian.Uint16(ip[4:])); length+40 > len(ip) {
			return d, fmt.Errorf("packet: IPv6 of %d bytes says %d: %w", len(ip), length+40, ErrBroken)
		}
		d.TOS, d.TTL, d.Proto, d.Inner = ip[0]<<4|ip[1]>>4, ip[7], ip[6], ip[40:]
		d.Src, d.Dst = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	default:
		return d, fmt.Errorf("packet: type %#x, first byte %#x: %w", kind, ip[0], ErrBroken)
	}
	return d, nil
}
