package weir

import (
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/epoll"
	"github.com/weirnet/weir/transport/uring"
)

// transports are the transports of this system, in the order in which Auto tries them.
func transports() []opener {
	return []opener{
		{kind: Uring, open: func(raw bool, warn func(string)) (transport.Transport, error) {
			return uring.Open(uring.Config{Raw: raw, Warn: warn})
		}},
		{kind: Epoll, open: func(raw bool, _ func(string)) (transport.Transport, error) {
			return epoll.Open(epoll.Config{Raw: raw})
		}},
	}
}
