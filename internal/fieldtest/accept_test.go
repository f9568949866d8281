//go:build linux

package fieldtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/pipeline"
)

// spareDescriptors is how many connections the child has room for.
const spareDescriptors = 20

// serveWithFewDescriptors echoes until its input ends. It prints its address, and then a line for every error of
// accepting. The argument is the transport.
func serveWithFewDescriptors(args []string) error {
	srv := &weir.Server{
		Transport: weir.Kind(args[0]), Loops: 1, Init: initEcho, AcceptBackoff: time.Millisecond, Logger: quiet(),
		AcceptError: func(err error) { fmt.Println("accept:", errors.Is(err, syscall.EMFILE), err) },
	}
	if _, err := srv.Listen("tcp", "127.0.0.1:0"); err != nil { // starts everything
		return err
	}
	// The kernel looks at the limit when an accept is submitted to io_uring: the listener comes after it. It takes a
	// descriptor, as counting did.
	limit := syscall.Rlimit{Max: uint64(testenv.OpenDescriptors() + spareDescriptors)}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	addr, err := srv.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(addr)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return srv.Shutdown(ctx)
}

func TestAcceptingRecoversByItselfAndOpenConnectionsAreUnharmed(t *testing.T) {
	covers(t, "netty/netty#15502", "lesismal/nbio#470")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		cmd := exec.Command(os.Args[0], "-test.run=^$", string(kind))
		cmd.Env = append(os.Environ(), childVariable+"=few descriptors")
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer func() { _ = cmd.Process.Kill() }()
		lines := make(chan string, 1000)
		var told atomic.Int64
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				told.Add(1)
				select {
				case lines <- s.Text():
				default: // too many: the test sees it by the number
				}
			}
		}()
		address := receive(t, lines, "the child's address")
		connect := func() net.Conn {
			c, err := net.DialTimeout("tcp", address, patience)
			require.NoError(t, err)
			t.Cleanup(func() { c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(2*patience)))
			return c
		}

		const early = 5
		var old [early]net.Conn
		for i := range old {
			old[i] = connect()
			require.NoError(t, ping(old[i], "before"))
		}
		stop := make(chan struct{})
		unharmed := make(chan error, 1)
		go func() { // all the time
			unharmed <- all(early, func(i int) error {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return nil
					default:
					}
					if err := ping(old[i], fmt.Sprint("round trip ", n)); err != nil {
						return fmt.Errorf("connection %d, opened before: %w", i, err)
					}
					time.Sleep(time.Millisecond)
				}
			})
		}()
		for round := range 3 {
			waiting := make([]net.Conn, 2*spareDescriptors)
			for i := range waiting {
				waiting[i] = connect() // the kernel connects them, served or not
			}
			for told.Load() < int64(round+2) {
				assert.Contains(t, receive(t, lines, "the error of accepting"), "accept: true", "EMFILE is told")
			}
			room := spareDescriptors - early
			for i, c := range waiting[:room] {
				require.NoError(t, ping(c, "x"), "round %d: connection %d, with room for %d", round, i, room)
			}
			for i, c := range waiting { // nobody connects anew: those that waited are served
				require.NoError(t, ping(c, "y"), "round %d: connection %d", round, i)
				require.NoError(t, c.Close())
			}
		}
		close(stop)
		require.NoError(t, receive(t, unharmed, "the end of the round trips"))
		for _, c := range old {
			c.Close()
		}
		require.NoError(t, in.Close())
		for range lines { // to the end
		}
		assert.Less(t, told.Load(), int64(500), "a pause that doubles tells few errors")
		require.NoError(t, cmd.Wait())
	})
}

func TestAListenerThatFailsIsToldAndGoesOn(t *testing.T) {
	covers(t, "lesismal/nbio#470")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		failures := make(chan error, 1000)
		listening := -1
		srv := &weir.Server{
			Transport: kind, Loops: 1, AcceptBackoff: 20 * time.Millisecond,
			AcceptError: func(err error) { failures <- err },
			Control: func(_, _ string, c syscall.RawConn) (failed error) {
				return errors.Join(c.Control(func(fd uintptr) {
					if listening < 0 {
						listening, failed = syscall.Dup(int(fd))
					}
				}), failed)
			},
		}
		r := newRig(t, srv, initEcho)
		defer syscall.Close(listening)
		c := r.dial()
		require.NoError(t, ping(c, "before"))
		// shutdown(2) of a listening socket makes accept(2) fail with EINVAL: nothing that goes away by itself.
		require.NoError(t, syscall.Shutdown(listening, syscall.SHUT_RDWR))
		for range 3 {
			require.ErrorIs(t, receive(t, failures, "the error of accepting"), syscall.EINVAL)
		}
		require.NoError(t, ping(c, "while it fails"))
		assert.NotZero(t, r.stats().AcceptErrors)
		assert.Len(t, r.log.Lines("accept failed"), 1, "the log has it once")
		addr, err := srv.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		r.Address = addr.String()
		require.NoError(t, ping(r.dial(), "another listener serves"))
		assert.Less(t, len(failures), 100, "it pauses between the tries")
	})
}

func TestABurstOfConnectionsIsAcceptedWhole(t *testing.T) {
	covers(t, "netty/netty#15502")
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		conns := scaled(4000, 800)
		r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, initEcho)
		release := r.block(0) // they all wait in the listener's queue, which is 4096 long
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = r.dial()
		}
		release()
		for i, c := range clients {
			require.NoError(t, ping(c, "x"), "connection %d", i)
		}
		assert.EqualValues(t, conns, r.stats().Accepted)
		assert.Zero(t, r.stats().AcceptErrors)
	})
}

// collector keeps what it receives.
type collector struct {
	got  chan<- string
	text []byte
}

func (c *collector) ChannelRead(_ *pipeline.Context, msg any) error {
	c.text = append(c.text, msg.(*buffer.Buf).Bytes()...)
	return nil
}

func (c *collector) ChannelInactive(ctx *pipeline.Context) error {
	c.got <- string(c.text)
	return nil
}

func TestDataThatComesBeforeTheHandlersIsDelivered(t *testing.T) {
	covers(t, "lesismal/nbio#75")
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("handlers added by another goroutine=%v", late), func(t *testing.T) {
			onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
				conns := scaled(300, 60)
				got := make(chan string, conns)
				var adders sync.WaitGroup
				gate := make(chan struct{})
				r := newRig(t, &weir.Server{Transport: kind, Loops: 1}, func(p *pipeline.Pipeline) error {
					if !late {
						return p.AddLast("", &collector{got: got})
					}
					return p.AddLast("waits", &hooks{active: func(ctx *pipeline.Context) error {
						ctx.Pause()
						ref := ctx.Ref()
						adders.Go(func() {
							<-gate
							_ = ref.Execute(func(ctx *pipeline.Context) {
								_ = ctx.Pipeline().AddLast("", &collector{got: got})
								_, _ = ctx.Pipeline().Remove("waits") // its pause goes with it
							})
						})
						return nil
					}})
				})
				release := r.block(0)
				want := map[string]int{}
				for i := range conns {
					c := r.dial()
					text := fmt.Sprintf("first words of %d", i)
					_, err := io.WriteString(c, text)
					require.NoError(t, err)
					want[text]++
					switch i % 3 {
					case 0:
						require.NoError(t, c.Close()) // it is over before anybody saw it
					case 1:
						require.NoError(t, c.(*net.TCPConn).CloseWrite())
					}
				}
				release()
				if late {
					r.eventually(func() bool { return r.Active.Load() == int64(conns) }, "all are active")
				}
				close(gate)
				r.t.Cleanup(adders.Wait)
				for i := range conns {
					if i == conns*2/3 { // the others have not finished
						r.OnLoop(0, func(*loop.Loop) {})
						r.closeClients()
					}
					want[receive(t, got, "first words")]--
				}
				for text, n := range want {
					assert.Zero(t, n, text)
				}
			})
		})
	}
}
