package ring

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"unsafe"

	abi "github.com/iceber/iouring-go/syscall"
	"golang.org/x/sys/unix"
)

// wanted are the flags that are asked for at first, and concessions what is given up, one after the other, while the
// kernel returns EINVAL: which flag it minds it does not say, so the youngest goes first.
const wanted = CQSize | Clamp | SubmitAll | SingleIssuer | DeferTaskrun | NoSQArray

// concession takes flags away and may put another one in their place.
type concession struct{ drop, add Flags }

func concessions() []concession {
	return []concession{
		{drop: NoSQArray},
		{drop: DeferTaskrun, add: CoopTaskrun}, // the two exclude each other
		{drop: SingleIssuer},
		{drop: CoopTaskrun},
		{drop: SubmitAll},
		{drop: Clamp},
		{drop: CQSize},
	}
}

// Open sets up a ring for the calling goroutine, which is locked to its OS thread. An error that wraps ErrUnavailable
// says why this process cannot have one.
func Open(cfg Config) (*Ring, error) {
	cfg = cfg.withDefaults()
	if cfg.Entries&(cfg.Entries-1) != 0 || cfg.CQEntries&(cfg.CQEntries-1) != 0 {
		return nil, fmt.Errorf("ring: %d and %d entries: not powers of two", cfg.Entries, cfg.CQEntries)
	}
	if cfg.Kernel != nil {
		return openFake(cfg)
	}
	fd, params, err := setup(cfg)
	if err != nil {
		return nil, err
	}
	r := &Ring{fd: fd, enterFD: uintptr(fd), flags: Flags(params.Flags), features: Features(params.Features)}
	if missing := required &^ r.features; missing != 0 {
		r.Close()
		return nil, fmt.Errorf("%w: this kernel lacks features %#x of %#x", ErrUnavailable, uint32(missing),
			uint32(required))
	}
	if err := r.mapQueues(params); err != nil {
		r.Close()
		return nil, err
	}
	if err := r.finish(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// setup asks for a ring with fewer and fewer flags.
func setup(cfg Config) (int, *abi.IOURingParams, error) {
	flags := wanted &^ cfg.Without
	if flags&SingleIssuer == 0 {
		flags &^= DeferTaskrun // needs the other
	}
	if flags&DeferTaskrun == 0 {
		flags |= CoopTaskrun &^ cfg.Without
	}
	rest := concessions()
	for {
		params := &abi.IOURingParams{Flags: uint32(flags)}
		if flags&CQSize != 0 {
			params.CQEntries = cfg.CQEntries
		}
		fd, err := abi.IOURingSetup(uint(cfg.Entries), params)
		if err == nil {
			return fd, params, nil
		}
		var errno syscall.Errno
		if !errors.As(err, &errno) || errno != unix.EINVAL {
			return 0, nil, unavailable(errno)
		}
		before := flags
		for flags == before {
			if len(rest) == 0 {
				return 0, nil, unavailable(errno)
			}
			c := rest[0]
			rest = rest[1:]
			if flags&c.drop != 0 {
				flags = flags&^c.drop | c.add&^cfg.Without
			}
		}
	}
}

// unavailable says what an error of io_uring_setup(2) means.
func unavailable(errno syscall.Errno) error {
	reason := errno.Error()
	switch errno {
	case unix.ENOSYS:
		reason = "the kernel has none, or a seccomp filter hides it (ENOSYS)"
	case unix.EPERM, unix.EACCES:
		reason = denied()
	case unix.ENOMEM:
		reason = noMemory()
	case unix.EMFILE, unix.ENFILE:
		reason = "no descriptor left: " + errno.Error()
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, reason, errno)
}

// denied tells the sysctl from a filter; io_uring_setup(2) returns EPERM for both.
func denied() string {
	switch setting, _ := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); strings.TrimSpace(string(setting)) {
	case "2":
		return "switched off by sysctl kernel.io_uring_disabled=2 (EPERM)"
	case "1":
		return "kernel.io_uring_disabled=1 and this process is not in kernel.io_uring_group (EPERM), " +
			"or a seccomp filter denies it"
	}
	return "denied by a seccomp filter or a security module, as container runtimes do by default (EPERM)"
}

// noMemory says what to do about ENOMEM: mostly it is the limit on locked memory, against which the kernel counts the
// queues of a process without CAP_IPC_LOCK (before Linux 5.12, and on recent ones again: __io_account_mem in
// io_uring/rsrc.c). A limit that cannot be asked for is shown as zero.
func noMemory() string {
	var limit unix.Rlimit
	_ = unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	return fmt.Sprintf("no memory for its queues (ENOMEM): they count against RLIMIT_MEMLOCK, here %d KiB for all "+
		"processes of this user: raise it (ulimit -l; LimitMEMLOCK= in a systemd unit)", limit.Cur/1024)
}

// mapQueues maps what io_uring_setup(2) laid out.
func (r *Ring) mapQueues(p *abi.IOURingParams) error {
	size := max(int(p.SQOffset.Array+p.SQEntries*4), int(p.CQOffset.Cqes+p.CQEntries*cqeBytes))
	rings, err := r.mapRing(abi.IORING_OFF_SQ_RING, size)
	if err != nil {
		return err
	}
	entries, err := r.mapRing(abi.IORING_OFF_SQES, int(p.SQEntries)*sqeBytes)
	if err != nil {
		return err
	}
	r.Shared = Shared{
		SQHead: word(rings, int(p.SQOffset.Head)), SQTail: word(rings, int(p.SQOffset.Tail)),
		SQFlags: word(rings, int(p.SQOffset.Flags)),
		CQHead:  word(rings, int(p.CQOffset.Head)), CQTail: word(rings, int(p.CQOffset.Tail)),
		CQOverflow: word(rings, int(p.CQOffset.Overflow)),
		CQEs:       view[CQE](rings, int(p.CQOffset.Cqes), int(p.CQEntries)),
		SQEs:       view[SQE](entries, 0, int(p.SQEntries)),
	}
	if r.flags&NoSQArray == 0 {
		// The indirection stays the identity for good.
		for i, slot := 0, view[uint32](rings, int(p.SQOffset.Array), int(p.SQEntries)); i < len(slot); i++ {
			slot[i] = uint32(i)
		}
	}
	return nil
}

func (r *Ring) mapRing(offset uint64, size int) ([]byte, error) {
	mem, err := unix.Mmap(r.fd, int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("ring: mmap of %d bytes at %#x: %w", size, offset, err)
	}
	r.mappings = append(r.mappings, mem)
	return mem, nil
}

// finish prepares what Enter needs.
func (r *Ring) finish() error {
	r.sqMask, r.cqMask = uint32(len(r.SQEs)-1), uint32(len(r.CQEs)-1)
	mem, err := mapAnonymous(pageBytes)
	if err != nil {
		return err
	}
	r.mappings = append(r.mappings, mem)
	r.arg = &view[eventsArg](mem, 0, 1)[0]
	r.timeout = &view[timespec](mem, timespecOffset, 1)[0]
	r.arg.ts = uint64(address(mem[timespecOffset:]))
	r.argAddress = address(mem)
	if r.kernel != nil {
		return nil
	}
	r.registerDescriptor()
	if r.features&NoIOWait != 0 {
		r.enterFlags |= enterNoIOWait
		if _, errno := r.enter(0, enterGetEvents, true); errno != 0 {
			r.enterFlags &^= enterNoIOWait
		}
	}
	if _, errno := r.enter(0, enterGetEvents, true); errno != 0 {
		return fmt.Errorf("%w: io_uring_enter: %w", ErrUnavailable, errno)
	}
	return nil
}

// registerDescriptor saves Enter the look-up of the descriptor, from 5.18 on. io_uring_register(2),
// IORING_REGISTER_RING_FDS: the registration is the thread's.
func (r *Ring) registerDescriptor() {
	update := rsrcUpdate{offset: ^uint32(0), data: uint64(r.fd)}
	// SAFETY: the struct has the kernel's layout and outlives the call, which returns in update.offset.
	if abi.IOURingRegister(r.fd, registerRingFDs, unsafe.Pointer(&update), 1) != nil {
		return
	}
	r.registered = true
	r.enterFD = uintptr(update.offset)
	r.enterFlags |= enterRegisteredRing
}

// Close frees the ring. Entries in flight should have ended before: the kernel cancels them, but later, on its own
// time.
func (r *Ring) Close() {
	if r.closed {
		return
	}
	r.closed = true
	if r.kernel != nil {
		r.kernel.Close()
	} else {
		if r.registered {
			update := rsrcUpdate{offset: uint32(r.enterFD)}
			// SAFETY: as in registerDescriptor. An error leaves the slot taken until the thread ends.
			_ = abi.IOURingRegister(r.fd, unregisterRingFDs, unsafe.Pointer(&update), 1)
		}
		_ = unix.Close(r.fd)
	}
	for _, mem := range r.mappings {
		_ = unix.Munmap(mem)
	}
	r.mappings = nil
	r.Shared = Shared{}
}
