//go:build linux

package ringtest

import (
	"fmt"
	"runtime"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/ring"
	"github.com/weirnet/weir/internal/testenv"
)

const groupID = 3

// result is a completion without what depends on the moment.
type result struct {
	data  uint64
	res   int32
	flags uint32
}

// scene is a ring with a pair of sockets and a few blocks.
type scene struct {
	*testing.T
	r      *ring.Ring
	fd     int32
	peer   int
	blocks *ring.BufferRing
	mem    [][]byte
}

func (s *scene) entry(data uint64) *ring.SQE {
	e := s.r.Get()
	require.NotNil(s, e)
	e.SetUserData(data)
	return e
}

func (s *scene) write(p string) {
	_, err := unix.Write(s.peer, []byte(p))
	require.NoError(s, err)
}

// reap enters once and returns what has completed; blocks go back.
func (s *scene) reap() []result {
	require.NoError(s, s.r.Wait(20*time.Millisecond, true))
	var all []result
	first, end := s.r.Ready()
	for ; first != end; first++ {
		c := s.r.Completion(first)
		all = append(all, result{c.UserData(), c.Result(), c.Flags() & (ring.FlagMore | ring.FlagBuffer)})
		if c.Flags()&ring.FlagBuffer != 0 {
			id := ring.BufferID(c)
			s.blocks.Add(s.mem[id], id)
		}
	}
	s.r.Reaped(end)
	s.blocks.Publish()
	return all
}

// all reaps until nothing comes any more.
func (s *scene) all() []result {
	var all []result
	for {
		got := s.reap()
		if len(got) == 0 {
			return all
		}
		all = append(all, got...)
	}
}

func newScene(t *testing.T, k *Kernel) *scene {
	cfg := ring.Config{Entries: 16, CQEntries: 32}
	if k != nil {
		cfg.Kernel = k
	}
	r, err := ring.Open(cfg)
	testenv.Require(t, "uring", err)
	t.Cleanup(r.Close)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	s := &scene{T: t, r: r, fd: int32(fds[0]), peer: fds[1]}
	s.blocks, err = r.RegisterBuffers(groupID, 4)
	require.NoError(t, err)
	for i := range uint16(4) {
		s.mem = append(s.mem, make([]byte, 8))
		s.blocks.Add(s.mem[i], i)
	}
	s.blocks.Publish()
	return s
}

// scenes are what both kernels have to do alike.
func scenes() map[string]func(s *scene) []result {
	return map[string]func(s *scene) []result{
		"nops in order": func(s *scene) []result {
			for i := range uint64(5) {
				ring.Nop(s.entry(i))
			}
			return s.all()
		},
		"a receive of what is there": func(s *scene) []result {
			s.write("abc")
			ring.Recv(s.entry(1), s.fd, groupID, 100)
			return s.all()
		},
		"a receive that waits": func(s *scene) []result {
			ring.Recv(s.entry(1), s.fd, groupID, 2)
			got := s.all()
			s.write("abc")
			return append(got, s.all()...)
		},
		"a limited receive": func(s *scene) []result {
			ring.RecvLimited(s.entry(1), s.fd, groupID, 4, 10)
			s.write("abcdefghijklmnop")
			return s.all()
		},
		"a limited receive ends at EOF": func(s *scene) []result {
			ring.RecvLimited(s.entry(1), s.fd, groupID, 8, 100)
			s.write("abc")
			got := s.all()
			require.NoError(s, unix.Shutdown(s.peer, unix.SHUT_WR))
			return append(got, s.all()...)
		},
		"a limited receive runs out of blocks": func(s *scene) []result {
			s.write("0123456789012345678901234567890123456789")
			ring.RecvLimited(s.entry(1), s.fd, groupID, 8, 100)
			return s.all()
		},
		"a send, and a skipped one": func(s *scene) []result {
			p := []byte("abc")
			ring.Send(s.entry(1), s.fd, p, unix.MSG_NOSIGNAL)
			e := s.entry(2)
			ring.Send(e, s.fd, p, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT|unix.MSG_WAITALL)
			ring.SkipSuccess(e)
			return s.all()
		},
		"a send to nobody": func(s *scene) []result {
			require.NoError(s, unix.Shutdown(int(s.fd), unix.SHUT_WR))
			ring.Send(s.entry(1), s.fd, []byte("abc"), unix.MSG_NOSIGNAL)
			return s.all()
		},
		"a send without room": func(s *scene) []result {
			var err error
			for err == nil {
				_, err = unix.Write(int(s.fd), make([]byte, 4096))
			}
			e := s.entry(1)
			ring.Send(e, s.fd, []byte("abc"), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT|unix.MSG_WAITALL)
			ring.SkipSuccess(e)
			ring.Send(s.entry(2), s.fd, []byte("abc"), unix.MSG_NOSIGNAL)
			got := s.all()
			_, err = unix.Read(s.peer, make([]byte, 1<<20))
			require.NoError(s, err)
			return append(got, s.all()...)
		},
		"cancel by number": func(s *scene) []result {
			ring.Recv(s.entry(1), s.fd, groupID, 8)
			got := s.all()
			ring.Cancel(s.entry(2), 1)
			ring.Cancel(s.entry(3), 1)
			return append(got, sorted(s.all())...)
		},
		"cancel by descriptor, then close": func(s *scene) []result {
			fd, err := unix.Dup(int(s.fd))
			require.NoError(s, err)
			ring.RecvLimited(s.entry(1), int32(fd), groupID, 8, 100)
			ring.Poll(s.entry(2), int32(fd), unix.POLLRDHUP, false)
			got := s.all()
			e := s.entry(3)
			ring.CancelDescriptor(e, int32(fd))
			ring.HardLink(e)
			ring.Close(s.entry(4), int32(fd))
			got = append(got, sorted(s.all())...)
			_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
			require.ErrorIs(s, err, unix.EBADF)
			return got
		},
		"cancel what is not there": func(s *scene) []result {
			ring.Cancel(s.entry(1), 77)
			ring.CancelDescriptor(s.entry(2), s.fd)
			return s.all()
		},
		"cancel everything": func(s *scene) []result {
			ring.Recv(s.entry(1), s.fd, groupID, 8)
			ring.Poll(s.entry(2), s.fd, unix.POLLRDHUP, false)
			got := s.all()
			ring.CancelEverything(s.entry(3))
			return append(got, sorted(s.all())...)
		},
		"a poll reports the end without being asked": func(s *scene) []result {
			ring.Poll(s.entry(1), s.fd, 0, false)
			got := s.all()
			s.write("abc")
			got = append(got, s.all()...)
			require.NoError(s, unix.Shutdown(s.peer, unix.SHUT_WR))
			return append(got, s.all()...)
		},
		"a close without an end": func(s *scene) []result {
			fd, err := unix.Dup(int(s.fd))
			require.NoError(s, err)
			ring.Close(s.entry(1), int32(fd))
			ring.Close(s.entry(2), int32(fd))
			return s.all()
		},
	}
}

// sorted orders completions of different operations, which come in any order.
func sorted(all []result) []result {
	sort.SliceStable(all, func(i, j int) bool { return all[i].data < all[j].data })
	return all
}

func TestAKernelWithoutFaultsAnswersLikeTheRealOne(t *testing.T) {
	for name, play := range scenes() {
		t.Run(name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			real := play(newScene(t, nil))
			for _, c := range real {
				if c.res == -int32(unix.EINVAL) {
					t.Skip("this kernel lacks the operation")
				}
			}
			scripted := play(newScene(t, New(1, Script{})))
			require.NotEmpty(t, real)
			assert.Equal(t, fmt.Sprint(real), fmt.Sprint(scripted))
		})
	}
}

func TestTheSameSeedMakesTheSameDecisions(t *testing.T) {
	run := func(seed uint64) ([]result, Faults) {
		k := New(seed, Script{
			ShortSend: 100, EndMultishot: 100, NoBuffers: 50, Late: 100, CancelTooLate: 100,
			Overflow: 60, PartialSubmit: 60,
		})
		s := newScene(t, k)
		k.Start()
		var all []result
		for i := range uint64(50) {
			if i%3 == 0 {
				ring.RecvLimited(s.entry(100+i), s.fd, groupID, 4, 20)
			}
			e := s.entry(200 + i)
			ring.Send(e, s.fd, make([]byte, 50), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT|unix.MSG_WAITALL)
			ring.SkipSuccess(e)
			s.write("abcdefghij")
			if i%5 == 0 {
				ring.Cancel(s.entry(300+i), 100+i-i%3)
			}
			all = append(all, s.reap()...)
			_, _ = unix.Read(s.peer, make([]byte, 1<<16))
		}
		return all, k.Faults()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first, faults := run(1)
	again, same := run(1)
	require.Equal(t, first, again)
	require.Equal(t, faults, same)
	require.NotZero(t, faults.ShortSends)
	require.NotZero(t, faults.EndedMultishots)
	require.NotZero(t, faults.Late)
	require.NotZero(t, faults.Overflows)
	require.NotZero(t, faults.PartialSubmits)
	other, _ := run(2)
	require.NotEqual(t, first, other)
}

func TestADroppedCompletionMovesTheCounter(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := New(1, Script{Drop: 256})
	s := newScene(t, k)
	k.Start()
	ring.Nop(s.entry(1))
	require.ErrorIs(t, s.r.Poll(), ring.ErrDropped)
	require.NoError(t, s.r.Poll())
	first, end := s.r.Ready()
	require.Equal(t, first, end)
	require.EqualValues(t, 1, s.r.Dropped())
}

// Example shows a kernel that says that a send fell short.
func Example() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	k := New(4, Script{ShortSend: 256})
	r, err := ring.Open(ring.Config{Entries: 8, Kernel: k})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	k.Start()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	e := r.Get()
	ring.Send(e, int32(fds[0]), make([]byte, 1000), unix.MSG_DONTWAIT|unix.MSG_WAITALL)
	ring.SkipSuccess(e)
	if err := r.Poll(); err != nil {
		fmt.Println(err)
	}
	first, end := r.Ready()
	fmt.Println(end-first, "completion, all sent:", r.Completion(first).Result() == 1000)
	// Output: 1 completion, all sent: false
}
