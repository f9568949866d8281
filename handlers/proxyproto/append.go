package proxyproto

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// AppendTo appends the header to dst. An error wraps ErrEncode and tells what does not go: TLVs, Unix sockets and UDP
// in version 1, addresses of another family than the Protocol's, or more than the format has room for; dst is then
// returned as it was.
func (h *Header) AppendTo(dst []byte) ([]byte, error) {
	if err := h.check(); err != nil {
		return dst, err
	}
	if h.Version == 1 {
		return h.append1(dst), nil
	}
	return h.append2(dst), nil
}

// check tells why the header cannot be written.
func (h *Header) check() error {
	nowhere := h.Local || h.Protocol == Unspecified
	switch {
	case h.Version != 1 && h.Version != 2:
		return cannotEncode("version %d", h.Version)
	case !h.Protocol.known() || h.Local && h.Protocol != Unspecified:
		return cannotEncode("protocol %v, local %v", h.Protocol, h.Local)
	case len(h.TLVs) > 0 && (nowhere || h.Version == 1):
		return cannotEncode("TLVs in version %d, protocol %v", h.Version, h.Protocol)
	case nowhere:
		return nil
	case h.Version == 1 && h.Protocol != TCP4 && h.Protocol != TCP6:
		return cannotEncode("%v in version 1", h.Protocol)
	}
	switch h.Protocol {
	case UnixStream, UnixDatagram:
		for _, p := range []string{h.SourcePath, h.DestinationPath} {
			if len(p) > pathBytes || strings.IndexByte(p, 0) >= 0 {
				return cannotEncode("a path of %d bytes: %q", len(p), p)
			}
		}
	default:
		for _, a := range []netip.Addr{h.Source.Addr(), h.Destination.Addr()} {
			four := h.Protocol == TCP4 || h.Protocol == UDP4
			if !a.IsValid() || a.Is4() != four || a.Zone() != "" {
				return cannotEncode("address %v of %v", a, h.Protocol)
			}
		}
	}
	return h.checkTLVs()
}

func (h *Header) checkTLVs() error {
	body, sums := h.Protocol.addressBytes(), 0
	for i := range h.TLVs {
		body += tlvHeaderBytes + h.TLVs[i].bytes()
		if h.TLVs[i].Type == TypeCRC32C {
			sums++
		}
	}
	if body > maxBody || sums > 1 {
		return cannotEncode("a body of %d bytes with %d checksums", body, sums)
	}
	return nil
}

// bytes is how long the value is on the wire.
func (t *TLV) bytes() int {
	if t.Type == TypeCRC32C {
		return crcBytes
	}
	return len(t.Value)
}

func (h *Header) append1(dst []byte) []byte {
	dst = append(dst, signature1...)
	if h.Local || h.Protocol == Unspecified {
		return append(dst, "UNKNOWN\r\n"...)
	}
	if h.Protocol == TCP4 {
		dst = append(dst, "TCP4 "...)
	} else {
		dst = append(dst, "TCP6 "...)
	}
	dst = append(h.Source.Addr().AppendTo(dst), ' ')
	dst = append(h.Destination.Addr().AppendTo(dst), ' ')
	dst = append(strconv.AppendUint(dst, uint64(h.Source.Port()), 10), ' ')
	dst = strconv.AppendUint(dst, uint64(h.Destination.Port()), 10)
	return append(dst, "\r\n"...)
}

func (h *Header) append2(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, signature2...)
	command := byte(0x21)
	if h.Local {
		command = 0x20
	}
	dst = append(dst, command, byte(h.Protocol), 0, 0)
	switch h.Protocol {
	case UnixStream, UnixDatagram:
		dst = appendPath(appendPath(dst, h.SourcePath), h.DestinationPath)
	case Unspecified:
	default:
		dst = appendAddr(appendAddr(dst, h.Source.Addr()), h.Destination.Addr())
		dst = binary.BigEndian.AppendUint16(dst, h.Source.Port())
		dst = binary.BigEndian.AppendUint16(dst, h.Destination.Port())
	}
	front, sum := len(dst), -1
	for i := range h.TLVs {
		t := &h.TLVs[i]
		dst = append(dst, byte(t.Type))
		dst = binary.BigEndian.AppendUint16(dst, uint16(t.bytes()))
		if t.Type == TypeCRC32C {
			sum = len(dst) - front
			dst = append(dst, 0, 0, 0, 0)
			continue
		}
		dst = append(dst, t.Value...)
	}
	binary.BigEndian.PutUint16(dst[start+14:], uint16(len(dst)-start-head2))
	if sum >= 0 {
		binary.BigEndian.PutUint32(dst[front+sum:], checksum(dst[start:front], dst[front:], sum))
	}
	return dst
}

func appendAddr(dst []byte, a netip.Addr) []byte {
	if a.Is4() {
		b := a.As4()
		return append(dst, b[:]...)
	}
	b := a.As16()
	return append(dst, b[:]...)
}

func appendPath(dst []byte, p string) []byte {
	dst = append(dst, p...)
	return append(dst, make([]byte, pathBytes-len(p))...)
}
