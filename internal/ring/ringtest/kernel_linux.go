package ringtest

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
)

const (
	enterGetEvents = 1 << 0 // include/uapi/linux/io_uring.h
	sqCQOverflow   = 1 << 1
)

// Kernel is one ring's kernel. It belongs to the ring's goroutine.
type Kernel struct {
	s       *ring.Shared
	rng     *rand.Rand
	script  Script
	calm    int // faults are off while above zero
	faults  Faults
	pending []*request // armed, in the order of their submission
	ready   []posted   // completions to come with a later Enter
	kept    []posted   // completions that did not fit the queue
	dropped bool       // to be told by EBADR
	groups  map[uint16]*group
}

// posted is a completion on its way.
type posted struct {
	data   uint64
	result int32
	flags  uint32
}

var _ ring.Kernel = (*Kernel)(nil)

// New returns a kernel that behaves as the script says. It is calm until Start.
func New(seed uint64, script Script) *Kernel {
	return &Kernel{rng: rand.New(rand.NewPCG(seed, 0x72696e67)), script: script, groups: map[uint16]*group{}, calm: 1}
}

// Start lets the faults begin, and Stop makes them end: nothing is late any more.
func (k *Kernel) Start() { k.calm = 0 }

// Stop ends the faults.
func (k *Kernel) Stop() { k.calm = 1 }

// Faults are what went wrong so far.
func (k *Kernel) Faults() Faults { return k.faults }

// Armed is the number of operations that have not ended.
func (k *Kernel) Armed() int { return len(k.pending) }

// String describes the operations that have not ended.
func (k *Kernel) String() string {
	text := ""
	for _, r := range k.pending {
		text += fmt.Sprintf("opcode %d of %#x, state %d; ", r.e.Opcode, r.e.UserData, r.state)
	}
	return text + fmt.Sprintf("%d late, %d kept, %d dropped", len(k.ready), len(k.kept), k.faults.Drops)
}

// Attach implements ring.Kernel.
func (k *Kernel) Attach(s *ring.Shared) { k.s = s }

// Close implements ring.Kernel.
func (k *Kernel) Close() {
	for _, r := range k.pending {
		r.release()
	}
	k.pending = nil
}

// fails decides whether something goes wrong that does so in chance of 256 cases, and counts it.
func (k *Kernel) fails(chance int, count *uint64) bool {
	if k.calm > 0 || chance == 0 || k.rng.IntN(256) >= chance {
		return false
	}
	*count++
	return true
}

// Enter implements ring.Kernel.
func (k *Kernel) Enter(submit, minimum, flags uint32, timeout time.Duration) (int, syscall.Errno) {
	if submit > 0 && k.fails(k.script.Again, &k.faults.Agains) {
		return 0, unix.EAGAIN
	}
	n := submit
	if submit > 1 && k.fails(k.script.PartialSubmit, &k.faults.PartialSubmits) {
		n = 1 + k.rng.Uint32N(submit-1)
	}
	k.consume(n)
	if flags&enterGetEvents != 0 {
		k.work()
		if minimum > 0 && n == submit {
			if errno := k.wait(timeout); errno != 0 && n == 0 {
				return 0, errno
			}
		}
	}
	if k.dropped && flags&enterGetEvents != 0 {
		k.dropped = false
		return 0, unix.EBADR
	}
	return int(n), 0
}

// consume takes n entries and begins them. A hard link holds the next entry back until the one before it has ended; it
// does not reach into the next Enter.
func (k *Kernel) consume(n uint32) {
	head := atomic.LoadUint32(k.s.SQHead)
	mask := uint32(len(k.s.SQEs) - 1)
	var batch []*request
	for i := range n {
		batch = append(batch, &request{k: k, e: ring.Read(&k.s.SQEs[(head+i)&mask])})
	}
	atomic.StoreUint32(k.s.SQHead, head+n)
	linked := false
	for i, r := range batch {
		next := r.e.Flags&sqeHardLink != 0 && i+1 < len(batch)
		if next {
			r.next = batch[i+1]
		}
		if !linked {
			r.begin()
		}
		linked = next
	}
}

// work lets everything make progress that can.
func (k *Kernel) work() {
	k.flush()
	late := k.ready
	k.ready = nil
	later := false
	for _, p := range late { // in order: what comes after a late one is late, too
		if later = later || k.fails(k.script.Late, &k.faults.Late); later {
			k.ready = append(k.ready, p)
			continue
		}
		k.place(p)
	}
	for _, r := range append([]*request(nil), k.pending...) {
		switch r.state {
		case waiting:
			r.run()
		case dying:
			r.end(-int32(unix.ECANCELED), 0)
		}
	}
	k.flush()
}

// flush moves completions that were kept aside into the queue.
func (k *Kernel) flush() {
	for len(k.kept) > 0 && k.space() > 0 {
		k.put(k.kept[0])
		k.kept = k.kept[1:]
	}
	if len(k.kept) == 0 {
		atomic.StoreUint32(k.s.SQFlags, atomic.LoadUint32(k.s.SQFlags)&^sqCQOverflow)
	}
}

// wait waits for a completion.
func (k *Kernel) wait(timeout time.Duration) syscall.Errno {
	deadline := time.Now().Add(timeout)
	for k.empty() {
		if len(k.ready) > 0 { // time passes, and what is late comes
			k.place(k.ready[0])
			k.ready = k.ready[1:]
			continue
		}
		if k.fails(k.script.Interrupted, &k.faults.Interrupts) {
			return unix.EINTR
		}
		if k.dying() {
			k.work()
			continue
		}
		left := timeout
		if timeout >= 0 {
			if left = time.Until(deadline); left <= 0 {
				return unix.ETIME
			}
		}
		k.poll(left)
		k.work()
	}
	return 0
}

// poll sleeps until a descriptor of an armed operation is ready, for at most timeout.
func (k *Kernel) poll(timeout time.Duration) {
	var fds []unix.PollFd
	for _, r := range k.pending {
		if r.state == waiting {
			fds = append(fds, unix.PollFd{Fd: int32(r.file), Events: r.interest()})
		}
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	if len(fds) == 0 && timeout < 0 {
		panic("ringtest: a wait without end, and nothing that could end it")
	}
	_, _ = unix.Poll(fds, ms) // a signal only means to look again
}

// dying reports whether an operation ends with the next work.
func (k *Kernel) dying() bool {
	for _, r := range k.pending {
		if r.state == dying {
			return true
		}
	}
	return false
}

func (k *Kernel) empty() bool { return atomic.LoadUint32(k.s.CQHead) == atomic.LoadUint32(k.s.CQTail) }

func (k *Kernel) space() int {
	return len(k.s.CQEs) - int(atomic.LoadUint32(k.s.CQTail)-atomic.LoadUint32(k.s.CQHead))
}

// place brings a completion to the queue, or keeps it aside, or loses it. One that is not the last of its operation is
// never lost alone: the kernel ends an operation that can not post one.
func (k *Kernel) place(p posted) {
	if p.flags&cqeMore == 0 && k.fails(k.script.Drop, &k.faults.Drops) {
		atomic.AddUint32(k.s.CQOverflow, 1)
		k.dropped = true
		return
	}
	if len(k.kept) > 0 || k.space() == 0 || k.fails(k.script.Overflow, &k.faults.Overflows) {
		k.kept = append(k.kept, p)
		atomic.StoreUint32(k.s.SQFlags, atomic.LoadUint32(k.s.SQFlags)|sqCQOverflow)
		return
	}
	k.put(p)
}

// put writes a completion into the queue, which has room.
func (k *Kernel) put(p posted) {
	tail := atomic.LoadUint32(k.s.CQTail)
	ring.Write(&k.s.CQEs[tail&uint32(len(k.s.CQEs)-1)], p.data, p.result, p.flags)
	atomic.StoreUint32(k.s.CQTail, tail+1)
}
