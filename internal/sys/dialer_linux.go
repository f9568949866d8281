package sys

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// DialOptions says how to open a socket that is to be connected.
type DialOptions struct {
	Network, Address string
	LocalAddress     string // "": the kernel chooses
	Control          func(network, address string, c syscall.RawConn) error
	Socket           SocketOptions
}

// OpenDialSocket opens, sets up and binds a socket, without connecting it, and writes the address to connect to into
// to. The socket is non-blocking and close-on-exec.
func OpenDialSocket(o *DialOptions, to *Sockaddr) (fd int, err error) {
	a, err := ParseAddress(o.Network, o.Address)
	if err != nil {
		return -1, err
	}
	if a.Network != "unix" && a.AddrPort.Port() == 0 || a.Wildcard {
		return -1, fmt.Errorf("%w: %s %q: a host and a port are needed to connect", ErrAddress, o.Network, o.Address)
	}
	fd, family, err := openSocket(&a)
	if err != nil {
		return -1, err
	}
	if err := prepareDial(fd, family, &a, o); err != nil {
		unix.Close(fd)
		return -1, err
	}
	a.sockaddr(to, family)
	return fd, nil
}

func prepareDial(fd, family int, a *Address, o *DialOptions) error {
	if err := o.Socket.Apply(fd, family, true); err != nil {
		return err
	}
	if err := control(o.Control, a.Network, o.Address, fd); err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if o.LocalAddress == "" {
		return nil
	}
	local, err := ParseAddress(o.Network, o.LocalAddress)
	if err != nil {
		return err
	}
	if local.Wildcard { // ":port": of whichever family is connected to
		local.Network = a.Network
	}
	if local.Network != a.Network {
		return fmt.Errorf("%w: local %q does not go with %q", ErrAddress, o.LocalAddress, o.Address)
	}
	if family != unix.AF_UNIX && local.AddrPort.Port() == 0 {
		// The port is chosen at connect, when the kernel knows the whole four-tuple and can use a port more than once
		// (ip(7), IP_BIND_ADDRESS_NO_PORT). Only an optimisation: old kernels lack it.
		_ = setInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	var sa Sockaddr
	local.sockaddr(&sa, family)
	if errno := Bind(fd, &sa); errno != 0 {
		return fmt.Errorf("bind %q: %w", o.LocalAddress, errno)
	}
	return nil
}

// ConnectedToItself reports whether a TCP socket is connected to itself: a connect to a local port of the ephemeral
// range where nobody listens can be given that same port as its own, and the simultaneous open of TCP (RFC 9293, 3.5)
// succeeds. to is the address connected to.
func ConnectedToItself(fd int, to *Sockaddr) bool {
	if to.Family() == unix.AF_UNIX {
		return false
	}
	var local Sockaddr
	return LocalAddress(fd, &local) == 0 && local.AddrPort() == to.AddrPort()
}
