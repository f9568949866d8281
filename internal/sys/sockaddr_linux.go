package sys

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sockaddr is a socket address as the kernel wants it. Its zero value is room for the kernel to write one into, after
// Reset. It belongs to one goroutine.
type Sockaddr struct {
	raw  unix.RawSockaddrAny
	size uint32
}

// Reset makes room for an address that the kernel writes.
func (s *Sockaddr) Reset() { s.size = uint32(unsafe.Sizeof(s.raw)) }

// Pointer is the address of the kernel's struct, for system calls and io_uring entries that take one.
func (s *Sockaddr) Pointer() unsafe.Pointer {
	// SAFETY: it points into s, which the caller keeps alive while the kernel uses it.
	return unsafe.Pointer(&s.raw)
}

// Size is the length of the address in bytes.
func (s *Sockaddr) Size() uint32 { return s.size }

// SizePointer is where the kernel finds the room for, and writes the length of, an address.
func (s *Sockaddr) SizePointer() unsafe.Pointer {
	// SAFETY: it points into s, which the caller keeps alive while the kernel uses it.
	return unsafe.Pointer(&s.size)
}

// Family is AF_INET, AF_INET6, AF_UNIX or another.
func (s *Sockaddr) Family() int { return int(s.raw.Addr.Family) }

// SetAddrPort sets an IP address. An IPv4 one becomes IPv4-mapped when family is AF_INET6, an IPv6 one 0.0.0.0 when it
// is AF_INET. zone is an interface index.
func (s *Sockaddr) SetAddrPort(family int, ap netip.AddrPort, zone uint32) {
	s.raw = unix.RawSockaddrAny{}
	if family == unix.AF_INET {
		sa := s.inet4()
		sa.Family, sa.Port = unix.AF_INET, networkOrder(ap.Port())
		if ip := ap.Addr().Unmap(); ip.Is4() {
			sa.Addr = ip.As4()
		}
		s.size = unix.SizeofSockaddrInet4
		return
	}
	sa := s.inet6()
	sa.Family, sa.Addr, sa.Scope_id = unix.AF_INET6, ap.Addr().As16(), zone
	sa.Port = networkOrder(ap.Port())
	s.size = unix.SizeofSockaddrInet6
}

// SetUnix sets the path of a Unix socket of at most 107 bytes; a leading '@' or zero byte is the abstract name space,
// whose names have no terminating zero (unix(7)).
func (s *Sockaddr) SetUnix(path string) {
	s.raw = unix.RawSockaddrAny{}
	sa := s.unix()
	sa.Family = unix.AF_UNIX
	n := 0
	for n < len(path) && n < maxUnixPath {
		sa.Path[n] = int8(path[n])
		n++
	}
	s.size = uint32(unsafe.Offsetof(sa.Path)) + uint32(n) + 1
	if n > 0 && (path[0] == '@' || path[0] == 0) {
		sa.Path[0] = 0
		s.size--
	}
}

// AddrPort is the IP address and port, IPv4-mapped addresses as IPv4, zero for other families. It allocates nothing
// except for an address with a zone.
func (s *Sockaddr) AddrPort() netip.AddrPort {
	switch s.raw.Addr.Family {
	case unix.AF_INET:
		sa := s.inet4()
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), networkOrder(sa.Port))
	case unix.AF_INET6:
		sa := s.inet6()
		ip := netip.AddrFrom16(sa.Addr)
		switch {
		case ip.Is4In6():
			ip = ip.Unmap()
		case sa.Scope_id != 0:
			ip = ip.WithZone(zoneName(sa.Scope_id))
		}
		return netip.AddrPortFrom(ip, networkOrder(sa.Port))
	}
	return netip.AddrPort{}
}

// Path is the path of a Unix socket, with '@' in front for an abstract name; empty for an unnamed socket and for other
// families.
func (s *Sockaddr) Path() string {
	sa := s.unix()
	n := int(s.size) - int(unsafe.Offsetof(sa.Path))
	if sa.Family != unix.AF_UNIX || n <= 0 {
		return ""
	}
	path := make([]byte, 0, len(sa.Path))
	for _, c := range sa.Path[:min(n, len(sa.Path))] {
		if c == 0 && len(path) > 0 && path[0] != 0 {
			break
		}
		path = append(path, byte(c))
	}
	return unixName(string(path))
}

// NetAddr is the address as a *net.TCPAddr or *net.UnixAddr; nil for other families.
func (s *Sockaddr) NetAddr() net.Addr {
	switch s.raw.Addr.Family {
	case unix.AF_INET, unix.AF_INET6:
		return net.TCPAddrFromAddrPort(s.AddrPort())
	case unix.AF_UNIX:
		return &net.UnixAddr{Name: s.Path(), Net: "unix"}
	}
	return nil
}

func (s *Sockaddr) inet4() *unix.RawSockaddrInet4 {
	// SAFETY: RawSockaddrAny is at least as large and as strictly aligned as every sockaddr.
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
}

func (s *Sockaddr) inet6() *unix.RawSockaddrInet6 {
	// SAFETY: as in inet4.
	return (*unix.RawSockaddrInet6)(unsafe.Pointer(&s.raw))
}

func (s *Sockaddr) unix() *unix.RawSockaddrUnix {
	// SAFETY: as in inet4.
	return (*unix.RawSockaddrUnix)(unsafe.Pointer(&s.raw))
}

// networkOrder turns a port between host and network byte order.
func networkOrder(port uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(port >> 8), byte(port)})
}
