//go:build !linux

package lb

import "github.com/weirnet/weir/xdp"

// Balancer is a balancer's program with its VIPs and servers. It is Linux's.
type Balancer struct{}

// New returns xdp.ErrUnsupported.
func New(Config) (*Balancer, error) { return nil, xdp.Check() }
