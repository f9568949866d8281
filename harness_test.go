//go:build linux

package weir_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/servertest"
)

const patience = servertest.Patience

var (
	onEveryTransport = servertest.Each
	needTransport    = servertest.Need
	ready            = servertest.Ready
	start            = servertest.Start
	startTCP         = servertest.StartTCP
	quiet            = servertest.Quiet
	only             = servertest.Only
	initEcho         = servertest.InitEcho
	connect          = servertest.Dial
	ping             = servertest.Ping
	eventually       = servertest.Eventually
	all              = servertest.All
	socketPath       = servertest.SocketPath
)

type (
	echo    = servertest.Echo
	logbook = servertest.Logbook
)

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return servertest.Receive(t, ch, what)
}

// TestMain runs the tests and then checks that no goroutine and no descriptor is left. The binary is also the child
// process of some tests.
func TestMain(m *testing.M) {
	if role := os.Getenv("WEIR_TEST_CHILD"); role != "" {
		os.Exit(child(role))
	}
	os.Exit(servertest.Main(m))
}

// free reports whether nobody listens on a TCP address.
func free(address string) bool {
	l, err := net.Listen("tcp", address)
	if err == nil {
		l.Close()
	}
	return err == nil
}

// noise is a reader of n bytes that look random and depend on seed.
func noise(seed uint64, n int64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return io.LimitReader(rand.NewChaCha8(key), n)
}

// compare reads both to the end and tells where they differ.
func compare(got, want io.Reader) error {
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := 0; ; {
		n, errA := io.ReadFull(got, a)
		m, errB := io.ReadFull(want, b)
		if !bytes.Equal(a[:n], b[:m]) {
			return fmt.Errorf("differs in the block of %d and %d bytes at %d (%v, %v)", n, m, at, errA, errB)
		}
		at += n
		if errA != nil {
			if errA == io.EOF || errA == io.ErrUnexpectedEOF {
				return nil
			}
			return fmt.Errorf("after %d bytes: %w", at, errA)
		}
	}
}

// sleepABit leaves the processor to others.
func sleepABit() { time.Sleep(100 * time.Microsecond) }

// closing returns a context for Shutdown and closes the clients meanwhile: a channel waits for its peer.
func closing(t testing.TB, clients []net.Conn) context.Context {
	for _, c := range clients {
		c.Close()
	}
	return background(t)
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}
