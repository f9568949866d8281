//go:build linux

// Package netlab makes small networks on this machine: network namespaces, and pairs of virtual interfaces between
// them. The namespaces have no names and no files; nothing but descriptors of this process keeps them, so all of it
// ends with the process, however that ends. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN.
package netlab

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Space is a network namespace. Its methods are for any goroutine.
type Space struct {
	// Name stands in errors.
	Name string
	ns   netns.NsHandle
	// Links speaks netlink to the namespace.
	Links *netlink.Handle
}

// NewSpace makes an empty namespace, with its loopback up, whose addresses are usable at once (no duplicate address
// detection).
func NewSpace(name string) (*Space, error) {
	s := &Space{Name: name}
	err := onThread(func() error {
		ns, err := netns.New() // moves this thread there, too
		if err != nil {
			return err
		}
		s.ns = ns
		s.Links, err = netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
		return err
	})
	if err == nil {
		err = errors.Join(
			s.Sysctl("net/ipv6/conf/all/accept_dad", "0"), s.Sysctl("net/ipv6/conf/default/accept_dad", "0"),
			s.Sysctl("net/ipv4/conf/all/rp_filter", "0"), s.Sysctl("net/ipv4/conf/default/rp_filter", "0"),
			s.Up("lo"))
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("netlab: namespace %s: %w", name, err)
	}
	return s, nil
}

// Do runs f on a thread that is in the namespace: sockets that f opens stay there. Goroutines that f starts are not.
func (s *Space) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.ns); err != nil {
			return fmt.Errorf("netlab: enter %s: %w", s.Name, err)
		}
		return f()
	})
}

// onThread runs f on a thread of its own, which ends afterwards: no other goroutine meets what f made of it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		finished := false
		defer func() {
			if !finished { // Goexit, as by t.FailNow
				done <- errors.New("netlab: the function did not return")
			}
		}()
		err := f()
		finished = true
		done <- err
	}()
	return <-done
}

// Close gives the namespace up. It ends with its interfaces once no socket is left in it.
func (s *Space) Close() {
	if s.Links != nil {
		s.Links.Close()
	}
	if s.ns.IsOpen() {
		_ = s.ns.Close()
	}
}

// Sysctl writes a setting below /proc/sys, such as net/ipv4/ip_forward.
func (s *Space) Sysctl(name, value string) error {
	return s.Do(func() error {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0); err != nil {
			return fmt.Errorf("netlab: %s: %w", s.Name, err)
		}
		return nil
	})
}

// Join makes a pair of virtual interfaces, one in each namespace, and takes both up.
func Join(a *Space, aName string, b *Space, bName string) error {
	err := a.Links.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: aName, MTU: 1500},
		PeerName:  bName, PeerNamespace: netlink.NsFd(b.ns),
	})
	if err != nil {
		return fmt.Errorf("netlab: interfaces %s in %s and %s in %s: %w", aName, a.Name, bName, b.Name, err)
	}
	return errors.Join(a.Up(aName), b.Up(bName))
}

// Bridge makes a bridge of interfaces that are there, without spanning tree and multicast snooping: it forwards at
// once.
func (s *Space) Bridge(name string, ports ...string) error {
	off := false
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}, MulticastSnooping: &off}
	if err := s.Links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("netlab: bridge %s in %s: %w", name, s.Name, err)
	}
	for _, port := range ports {
		link, err := s.Link(port)
		if err == nil {
			err = s.Links.LinkSetMaster(link, bridge)
		}
		if err != nil {
			return fmt.Errorf("netlab: port %s of %s in %s: %w", port, name, s.Name, err)
		}
	}
	return s.Up(name)
}

// Link returns an interface of the namespace.
func (s *Space) Link(name string) (netlink.Link, error) {
	l, err := s.Links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("netlab: interface %s in %s: %w", name, s.Name, err)
	}
	return l, nil
}

// MTU sets an interface's.
func (s *Space) MTU(name string, bytes int) error {
	l, err := s.Link(name)
	if err == nil {
		err = s.Links.LinkSetMTU(l, bytes)
	}
	return err
}

// Up takes an interface up.
func (s *Space) Up(name string) error {
	l, err := s.Link(name)
	if err == nil {
		err = s.Links.LinkSetUp(l)
	}
	return err
}

// Address gives an interface addresses with their prefixes, such as 10.0.0.1/24. An IPv6 address with 128 bits is
// for others to connect to; what leaves has another source.
func (s *Space) Address(name string, prefixes ...string) error {
	l, err := s.Link(name)
	if err != nil {
		return err
	}
	for _, p := range prefixes {
		address, err := netlink.ParseAddr(p)
		if err != nil {
			return fmt.Errorf("netlab: address %s: %w", p, err)
		}
		if strings.Contains(p, ":") {
			address.Flags = unix.IFA_F_NODAD
		}
		if bits, _ := address.Mask.Size(); bits == 128 {
			// Deprecated (RFC 4862): others can reach it, but it is not what connections from here come from.
			address.ValidLft, address.PreferedLft = math.MaxUint32, 0
		}
		if err := s.Links.AddrAdd(l, address); err != nil {
			return fmt.Errorf("netlab: address %s of %s in %s: %w", p, name, s.Name, err)
		}
	}
	return nil
}

// Hide gives a server addresses that others have told the network of, on its loopback: it accepts their packets and
// replies from them, and keeps silent when somebody asks who has them (arp_ignore and arp_announce of the kernel's
// ip-sysctl). It tells the network when its own MAC changes.
func (s *Space) Hide(prefixes ...string) error {
	return errors.Join(
		s.Sysctl("net/ipv4/conf/all/arp_ignore", "1"), s.Sysctl("net/ipv4/conf/all/arp_announce", "2"),
		s.Sysctl("net/ipv4/conf/all/arp_notify", "1"), s.Sysctl("net/ipv6/conf/all/ndisc_notify", "1"),
		s.Address("lo", prefixes...))
}

// ChecksumInSoftware makes an interface's packets leave with their checksums. A virtual interface leaves them to a
// device that is not there; what comes back by XDP_TX has lost the mark that says so, and the receiver sees wrong
// checksums.
func (s *Space) ChecksumInSoftware(name string) error {
	return s.Do(func() error {
		e, err := ethtool.NewEthtool()
		if err == nil {
			defer e.Close()
			err = e.Change(name, map[string]bool{"tx-checksum-ip-generic": false})
		}
		if err != nil {
			return fmt.Errorf("netlab: checksums of %s in %s: %w", name, s.Name, err)
		}
		return nil
	})
}

// BPFFS mounts a BPF file system nowhere and returns the path that leads to it through a descriptor, for what is to
// be pinned. It ends with close.
func BPFFS() (path string, closeFS func() error, err error) {
	context, err := unix.Fsopen("bpf", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return "", nil, fmt.Errorf("netlab: fsopen bpf: %w", err)
	}
	defer unix.Close(context)
	if err := unix.FsconfigCreate(context); err != nil {
		return "", nil, fmt.Errorf("netlab: fsconfig bpf: %w", err)
	}
	mount, err := unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("netlab: fsmount bpf: %w", err)
	}
	return fmt.Sprintf("/proc/self/fd/%d", mount), func() error { return unix.Close(mount) }, nil
}
