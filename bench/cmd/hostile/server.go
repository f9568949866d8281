//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

const (
	loops = 4
	// messageBytes is the length of a request: an operation and its argument.
	messageBytes = 8
	// taskTime is what a posted task takes.
	taskTime = 10 * time.Microsecond
	// burst is how many tasks are posted to a channel at a time, and burstEvery how often: what a fan-out does.
	burst      = 20
	burstEvery = 20 * time.Millisecond
)

// The operations. The argument stands in the seven bytes behind, big endian.
const (
	opPing  = 'p' // comes back
	opBlock = 'b' // blocks the loop for so many milliseconds, then comes back
	opFill  = 'f' // is answered by so many KiB
	opPost  = 'o' // posts tasks to this channel for so many milliseconds
	opCount = 'c' // comes back with the number of tasks posted so far
)

// server is the program's other half. Its fields are shared by the loops.
type server struct {
	mu    sync.Mutex
	loops map[*buffer.Pool]byte // a loop has one pool

	posted atomic.Int64
	fill   []byte
}

// serveUntilEOF prints its address and serves until standard input ends.
func serveUntilEOF(transport string) error {
	runtime.GOMAXPROCS(loops + 1) // a loop that waits raw holds a P
	s := &server{loops: map[*buffer.Pool]byte{}, fill: make([]byte, 64<<10)}
	srv := weir.Server{Transport: weir.Kind(transport), Loops: loops, Init: func(p *pipeline.Pipeline) error {
		return p.AddLast("hostile", &session{server: s})
	}}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(addr)
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return srv.Close()
}

// loop numbers the loops as they are seen.
func (s *server) loop(p *buffer.Pool) byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.loops[p]
	if !ok {
		n = byte(len(s.loops))
		s.loops[p] = n
	}
	return n
}

// session is one connection.
type session struct {
	server *server
	input  []byte
}

// ChannelActive tells the client on which loop it is.
func (s *session) ChannelActive(ctx *pipeline.Context) error {
	return ctx.WriteBytes([]byte{s.server.loop(ctx.Pool())})
}

func (s *session) ChannelRead(ctx *pipeline.Context, msg any) error {
	s.input = append(s.input, msg.(*buffer.Buf).Bytes()...)
	for len(s.input) >= messageBytes {
		var m [messageBytes]byte
		copy(m[:], s.input)
		s.input = s.input[messageBytes:]
		if err := s.serve(ctx, m[:]); err != nil {
			return err
		}
	}
	s.input = append(s.input[:0:0], s.input...)
	return nil
}

func (s *session) serve(ctx *pipeline.Context, m []byte) error {
	op := m[0]
	argument := binary.BigEndian.Uint64(m) & (1<<56 - 1)
	switch op {
	case opPing:
	case opBlock:
		time.Sleep(time.Duration(argument) * time.Millisecond)
	case opFill:
		for left := int(argument) << 10; left > 0; left -= len(s.server.fill) {
			if err := ctx.WriteBytes(s.server.fill); err != nil {
				return err
			}
		}
		return nil
	case opPost:
		go s.server.post(ctx.Ref(), time.Duration(argument)*time.Millisecond)
	case opCount:
		binary.BigEndian.PutUint64(m, uint64(s.server.posted.Load()))
		m[0] = op
	default:
		return fmt.Errorf("hostile: operation %q", op)
	}
	return ctx.WriteBytes(m)
}

// post posts bursts of tasks, of which the channel takes what it has room for.
func (s *server) post(ref pipeline.Ref, d time.Duration) {
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		for range burst {
			err := ref.Execute(func(*pipeline.Context) {
				for until := time.Now().Add(taskTime); time.Now().Before(until); {
				}
			})
			if errors.Is(err, pipeline.ErrClosed) {
				return
			}
			if err != nil {
				break
			}
			s.posted.Add(1)
		}
		time.Sleep(burstEvery)
	}
}
