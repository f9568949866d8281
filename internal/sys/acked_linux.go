package sys

import "golang.org/x/sys/unix"

// Acked returns a mark that changes whenever the peer has acknowledged more of what was sent, and how many bytes are
// left: tcpi_bytes_acked of TCP_INFO, and SIOCOUTQ (tcp(7)). Unix sockets have no acknowledgements; there SIOCOUTQ is
// what the peer has not read (unix(7)), and changes as it reads.
func Acked(fd int) (mark uint64, left int, err error) {
	left, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0, 0, err
	}
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return uint64(left), left, nil
	}
	return info.Bytes_acked, left, nil
}
