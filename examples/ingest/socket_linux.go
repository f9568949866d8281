package main

import "syscall"

// setReceiveBuffer returns a net.ListenConfig.Control that sets SO_RCVBUF. It has to be there before the first client
// comes: what a connection may send at first is made from the listener's buffer (tcp(7)).
func setReceiveBuffer(n int) func(network, address string, c syscall.RawConn) error {
	if n <= 0 {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET,
				syscall.SO_RCVBUF, n)
		})
		if err != nil {
			return err
		}
		return failed
	}
}
