//go:build linux

package weir_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/internal/testenv"
)

// child is what this binary does as the child process of a test.
func child(role string) int {
	err := fmt.Errorf("unknown role")
	kind, isServer := strings.CutPrefix(role, "few descriptors on ")
	if isServer {
		err = serveWithFewDescriptors(weir.Kind(kind))
	}
	if kind, ok := strings.CutPrefix(role, "until killed on "); ok {
		err = serveUntilKilled(weir.Kind(kind))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role, err)
		return 1
	}
	return 0
}

// spareDescriptors is how many connections the child has room for.
const spareDescriptors = 20

// serveWithFewDescriptors echoes until its input ends. It prints its address, and then a line for every error of
// accepting.
func serveWithFewDescriptors(kind weir.Kind) error {
	var failures atomic.Int32
	srv := &weir.Server{
		Transport: kind, Loops: 1, Init: initEcho, AcceptBackoff: 1e6, Logger: quiet(),
		AcceptError: func(err error) {
			failures.Add(1)
			fmt.Println("accept:", errors.Is(err, syscall.EMFILE), err)
		},
	}
	if err := ready(&weir.Dialer{Server: srv}); err != nil { // opens what the loop needs
		return err
	}
	// One is that of counting, and one is for another listener: io_uring looks at the limit when the accept is armed.
	limit := syscall.Rlimit{Max: uint64(testenv.OpenDescriptors() - 1 + 1 + spareDescriptors)}
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
	return srv.Shutdown(context.Background())
}

func TestAcceptingRecoversFromRunningOutOfDescriptors(t *testing.T) {
	onEveryTransport(t, func(t *testing.T, kind weir.Kind) {
		cmd := exec.Command(os.Args[0], "-test.run=^$")
		cmd.Env = append(os.Environ(), "WEIR_TEST_CHILD=few descriptors on "+string(kind))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		defer cmd.Process.Kill()
		lines := make(chan string, 1000)
		go func() {
			defer close(lines)
			for s := bufio.NewScanner(out); s.Scan(); {
				select {
				case lines <- s.Text():
				default: // it goes on and on: the test sees it by the number
				}
			}
		}()
		addr := receive(t, lines, "the child's address")

		const conns = 3 * spareDescriptors
		clients := make([]net.Conn, conns)
		for i := range clients {
			clients[i] = connect(t, "tcp", addr) // the kernel connects them, served or not
		}
		line := receive(t, lines, "the error of accepting")
		assert.Contains(t, line, "accept: true", "EMFILE is told")
		served := 0
		for _, c := range clients { // in the order of the kernel's queue
			if served == spareDescriptors {
				break
			}
			require.NoError(t, ping(c, "x"), "connection %d, with room for %d", served, spareDescriptors)
			served++
		}
		for _, c := range clients[:served] {
			require.NoError(t, c.Close())
		}
		for i, c := range clients[served : 2*served] { // nobody connects anew: those that waited are served
			require.NoError(t, ping(c, "y"), "connection %d", served+i)
		}
		for _, c := range clients[served:] {
			c.Close()
		}
		// One loop with a pause that doubles up to a second tells few errors, however long it lasts.
		require.NoError(t, in.Close())
		told := 1
		for range lines {
			told++
		}
		assert.Less(t, told, 200, "errors of accepting")
		require.NoError(t, cmd.Wait())
	})
}
