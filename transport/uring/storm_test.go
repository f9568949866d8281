//go:build linux

package uring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

// crowdEnv makes this test binary the peers of the test below: it has the address to connect to. Two processes, because
// the descriptors of both ends exceed what one may have.
const (
	crowdEnv  = "WEIR_URING_CROWD"
	crowd     = 10_000
	crowdSize = 600
	allSpoke  = "all have spoken\n"
)

// TestCreditsOf64EntriesCarry10000ConnectionsThatAllSpeakAtOnce: every byte arrives, and nothing is lost.
func TestCreditsOf64EntriesCarry10000ConnectionsThatAllSpeakAtOnce(t *testing.T) {
	if address := os.Getenv(crowdEnv); address != "" {
		if err := speakAtOnce(address); err != nil {
			t.Fatal(err)
		}
		return
	}
	d := drive(t, Config{Entries: 32, CompletionEntries: 64, BlockBytes: 256})
	ln, addr := d.listen(transport.SocketConfig{})
	accept := d.submit(transport.Op{Kind: transport.Accept, Handle: ln})
	peers := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	peers.Env = append(os.Environ(), crowdEnv+"="+addr)
	peers.Stderr = os.Stderr
	start, err := peers.StdinPipe()
	require.NoError(t, err)
	told, err := peers.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, peers.Start())
	t.Cleanup(func() { _ = peers.Process.Kill() })
	d.until("all connections", func() bool { return len(accept.conns) == crowd })
	var recvs []*call
	for _, c := range accept.conns {
		recvs = append(recvs, d.recv(c.Handle, crowdSize))
	}
	d.quiet()
	require.NoError(t, start.Close())
	spoken := make([]byte, len(allSpoke))
	_, err = io.ReadFull(told, spoken)
	require.NoError(t, err)
	require.Equal(t, allSpoke, string(spoken))
	d.done(recvs...)
	var sends []*call
	for i, c := range accept.conns {
		require.NoError(t, recvs[i].err)
		require.Len(t, recvs[i].data, crowdSize)
		sends = append(sends, d.send(c.Handle, recvs[i].data))
	}
	d.done(sends...)
	require.NoError(t, peers.Wait())
	st := d.tr.Stats()
	t.Logf("%+v", st)
	require.NotZero(t, st.Overflows)
	require.NotZero(t, st.Overflowed)
	require.Zero(t, st.Dropped)
	require.Equal(t, 64, st.WaitingEntries)
	d.balanced()
}

// speakAtOnce connects, waits for the end of stdin, speaks on every connection, and wants its own words back.
func speakAtOnce(address string) error {
	conns := make([]net.Conn, crowd)
	for i := range conns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		conns[i] = c
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	for i, c := range conns {
		if _, err := c.Write(pattern(i, crowdSize)); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	fmt.Print(allSpoke)
	p := make([]byte, crowdSize)
	for i, c := range conns {
		if _, err := io.ReadFull(c, p); err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		if !bytes.Equal(p, pattern(i, crowdSize)) {
			return errors.New("a connection got what another one said")
		}
	}
	return nil
}
