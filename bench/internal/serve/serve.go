// Package serve is what the Go servers of the bench have in common: flags, the line that tells the address, profiles,
// the end. A server ends when its standard input does, so none outlives whoever started it.
package serve

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
)

// The modes of a server.
const (
	Echo   = "echo"   // what comes goes back
	Frames = "frames" // a frame is decoded, and answered by a frame with its payload
	Proxy  = "proxy"  // what comes goes to Options.Backend, and back
)

// Options are the flags of a server.
type Options struct {
	Address    string
	Mode       string
	Loops      int
	Backend    string
	CPUProfile string
	MemProfile string
}

// Flags defines the flags that all servers have; call it before flag.Parse.
func Flags() *Options {
	o := &Options{}
	flag.StringVar(&o.Address, "addr", "127.0.0.1:0", "address to listen on; port 0: one that is free")
	flag.StringVar(&o.Mode, "mode", Echo, "echo, frames or proxy (not all servers have all)")
	flag.IntVar(&o.Loops, "loops", 1, "number of event loops")
	flag.StringVar(&o.Backend, "backend", "", "where a proxy connects to")
	flag.StringVar(&o.CPUProfile, "cpuprofile", "", "write a CPU profile to this file")
	flag.StringVar(&o.MemProfile, "memprofile", "", "write a profile of allocations to this file at the end")
	return o
}

// FixAddress replaces port 0 by a port that is free now, for servers that open several listeners or do not tell which
// port they got.
func (o *Options) FixAddress() error {
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return fmt.Errorf("serve: a free port: %w", err)
	}
	o.Address = l.Addr().String()
	return l.Close()
}

// Ready prints the address, which tells whoever started the server that it serves, and returns when standard input
// ends.
func (o *Options) Ready(address string) error {
	stop, err := o.profile()
	if err != nil {
		return err
	}
	fmt.Println("listening", address)
	_, err = io.Copy(io.Discard, os.Stdin)
	return firstError(err, stop())
}

// profile starts the CPU profile, if one was asked for, and returns what ends it.
func (o *Options) profile() (stop func() error, err error) {
	var cpu *os.File
	if o.CPUProfile != "" {
		if cpu, err = os.Create(o.CPUProfile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(cpu); err != nil {
			return nil, err
		}
	}
	if o.MemProfile != "" {
		runtime.MemProfileRate = 1
	}
	return func() (err error) {
		if cpu != nil {
			pprof.StopCPUProfile()
			err = cpu.Close()
		}
		if o.MemProfile != "" {
			err = firstError(err, writeAllocations(o.MemProfile))
		}
		return err
	}, nil
}

func writeAllocations(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	runtime.GC() // the profile is as of the last collection
	return firstError(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// BadMode is the error of a server that does not have the mode.
func (o *Options) BadMode() error { return fmt.Errorf("serve: no mode %q here", o.Mode) }

// Fatal ends the process with err.
func Fatal(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
