// Package uring is transport.Transport on Linux' io_uring: what is submitted goes to the kernel, and what has completed
// comes back, in one system call per Wait.
//
// What it uses from which kernel on, what replaces it and how to see what a ring does is in docs/io_uring.md.
package uring

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/buffer"
)

// What callers branch on.
var (
	// ErrUnavailable is wrapped by what Probe and Open return when this process cannot use io_uring; the text says why.
	ErrUnavailable = errors.New("uring: unavailable")
	// ErrLost is wrapped by the error of every Wait after the kernel had no memory for a completion. Which operation it
	// was of is unknown, so the transport is beyond use.
	ErrLost = errors.New("uring: the kernel lost completions")
)

// Features are what a transport uses where the kernel has it.
type Features uint32

const (
	// LimitedReceives are multishot receives that end after a number of bytes (Linux 6.17). Otherwise each completion
	// is asked for.
	LimitedReceives Features = 1 << iota
	// VectoredSends are sends of several Bufs without a message header (Linux 6.17). Otherwise they have one.
	VectoredSends
	// SkippedSends have no completion in the ring when all of their bytes were taken (Linux 5.17). Otherwise each has
	// one.
	SkippedSends
)

// String names the features.
func (f Features) String() string {
	names := [...]string{"limited receives", "vectored sends", "skipped sends"}
	text := ""
	for i, name := range names {
		if f&(1<<i) != 0 {
			if text != "" {
				text += ", "
			}
			text += name
		}
	}
	return text
}

// Config configures a Transport. The zero value works.
type Config struct {
	// Raw lets Wait block up to 5 ms without telling Go's scheduler: cheaper, but the loop's P does nothing else
	// meanwhile. Use it for fewer loops than GOMAXPROCS.
	Raw bool
	// Entries is the length of the submission queue, a power of two from 8 on. Zero means 4096, and less, down to 128,
	// where RLIMIT_MEMLOCK leaves no room for that. When it is full, Wait makes further system calls.
	Entries int
	// CompletionEntries is the length of the completion queue, a power of two, at least Entries. Zero means four times
	// Entries. When it is full, the kernel keeps completions aside: dearer, but nothing is lost.
	CompletionEntries int
	// Blocks is the most blocks to receive into at a time, a power of two up to 32768. Zero means 1024. There are only
	// as many as it takes, at first 64, and in the kernel at most half of CompletionEntries. When all are in use,
	// receives wait until one comes back.
	Blocks int
	// BlockBytes is the size of a block, a power of two from 256 to 1 MiB. Zero means 16 KiB.
	BlockBytes int
	// Warn, when set, is told of what an operator should know, once for each thing, on the goroutine of the transport.
	Warn func(text string)
	// Without are features not to use although the kernel has them.
	Without Features
	// Pool configures the loop's pool.
	Pool buffer.PoolConfig
}

// withDefaults returns the configuration with its zeros replaced, or an error.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Entries == 0 {
		cfg.Entries = 4096
	}
	if cfg.CompletionEntries == 0 {
		cfg.CompletionEntries = 4 * cfg.Entries
	}
	if cfg.Blocks == 0 {
		cfg.Blocks = 1024
	}
	if cfg.BlockBytes == 0 {
		cfg.BlockBytes = 16 << 10
	}
	for _, n := range []struct {
		name              string
		value, low, limit int
	}{
		{"Entries", cfg.Entries, 8, 1 << 15},
		{"CompletionEntries", cfg.CompletionEntries, cfg.Entries, 1 << 16},
		{"Blocks", cfg.Blocks, 1, 1 << 15},
		{"BlockBytes", cfg.BlockBytes, 256, 1 << 20},
	} {
		if n.value < n.low || n.value > n.limit || n.value&(n.value-1) != 0 {
			return cfg, fmt.Errorf("uring: %s %d: want a power of two from %d to %d", n.name, n.value, n.low, n.limit)
		}
	}
	return cfg, nil
}

// Counters tell what a transport did, since it was opened. They grow, except for Parked and Blocks.
type Counters struct {
	Enters uint64 // system calls to submit and wait

	LimitedReceives   uint64 // receives armed with a limit for the kernel to keep
	MultishotReceives uint64 // completions of receives that went on by themselves
	MultishotRearms   uint64 // receives armed again because they ended before their limit
	SingleReceives    uint64 // receives armed for one completion
	PolledReceives    uint64 // receives polled for, because the kernel refuses blocks
	BufferRingEmpty   uint64 // receives that found no block
	Parked            int    // receives that wait for a block now
	Blocks            int    // blocks that the kernel is given at a time now
	BlocksLeft        uint64 // blocks that somebody kept past their turn, each replaced by another

	SkippedSends  uint64 // sends that were done without a completion in the ring
	OrdinarySends uint64 // sends with one
	VectoredSends uint64 // of both, those of several Bufs
	ShortSends    uint64 // sends that the kernel took only in part
	Splices       uint64 // pieces of files that came through a pipe
	FileReads     uint64 // pieces of files that had to be copied

	Overflows   uint64 // times the completion queue did not hold all completions
	Overflowed  uint64 // completions that came late because of that, at most
	Lost        uint64 // completions that the kernel lost, after which the transport is of no use
	HeldAccepts uint64 // accepts armed later, because 75 % of the completion queue or more waited
	HeldReceive uint64 // receives armed later, for the same reason
}
