package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/transport"
)

const patience = 30 * time.Second

// person is a client with the lines it has read.
type person struct {
	net.Conn
	lines *bufio.Reader
	nick  string
}

// join connects and reads the welcome.
func join(t *testing.T, addr string) *person {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, patience)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	p := &person{Conn: c, lines: bufio.NewReader(c)}
	welcome, err := p.read()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(welcome, "* welcome, you are guest-"), "%q", welcome)
	p.nick, _, _ = strings.Cut(strings.TrimPrefix(welcome, "* welcome, you are "), ";")
	return p
}

func (p *person) read() (string, error) {
	line, err := p.lines.ReadString('\n')
	return strings.TrimSuffix(line, "\n"), err
}

// hears reads until it gets the line.
func (p *person) hears(t *testing.T, want string) {
	t.Helper()
	var heard []string
	for {
		line, err := p.read()
		require.NoError(t, err, "%s waits for %q, heard %q", p.nick, want, heard)
		if line == want {
			return
		}
		heard = append(heard, line)
	}
}

func (p *person) says(t *testing.T, format string, args ...any) {
	t.Helper()
	_, err := fmt.Fprintf(p, format+"\n", args...)
	require.NoError(t, err)
}

func all(n int, fn func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func TestEverybodySeesEveryLineOnceAndInTheSpeakersOrder(t *testing.T) {
	addr := servertest.StartTCP(t, newServer())
	const people, lines = 50, 20
	persons := make([]*person, people)
	for i := range persons {
		persons[i] = join(t, addr)
	}
	require.NoError(t, all(people, func(i int) error {
		for line := range lines {
			if _, err := fmt.Fprintf(persons[i], "line %d\r\n", line); err != nil {
				return err
			}
		}
		next := map[string]int{}
		for heard := 0; heard < people*lines; {
			line, err := persons[i].read()
			if err != nil {
				return fmt.Errorf("%s, after %d lines: %w", persons[i].nick, heard, err)
			}
			nick, text, spoken := strings.Cut(strings.TrimPrefix(line, "<"), "> ")
			if !spoken {
				continue // somebody has joined
			}
			if want := fmt.Sprintf("line %d", next[nick]); text != want {
				return fmt.Errorf("%s heard %q of %s, not %q", persons[i].nick, text, nick, want)
			}
			next[nick]++
			heard++
		}
		if len(next) != people {
			return fmt.Errorf("%s heard %d people", persons[i].nick, len(next))
		}
		return nil
	}))
}

func TestJoiningRenamingAndLeavingAreTold(t *testing.T) {
	addr := servertest.StartTCP(t, newServer())
	a, b := join(t, addr), join(t, addr)
	a.hears(t, "* "+b.nick+" has joined")
	b.says(t, "/nick bob")
	a.hears(t, "* "+b.nick+" is now bob")
	b.says(t, "hello")
	a.hears(t, "<bob> hello")
	b.hears(t, "<bob> hello")
	for _, refused := range []struct{ line, answer string }{
		{"/nick bob", "* " + errNickTaken.Error()},
		{"/nick", "* " + errNickBad.Error()},
		{"/nick two words", "* " + errNickBad.Error()},
		{"/nick " + strings.Repeat("x", maxNickBytes+1), "* " + errNickBad.Error()},
		{"/dance", "* there is no command /dance"},
	} {
		a.says(t, "%s", refused.line)
		a.hears(t, refused.answer)
	}
	a.says(t, "/nick %s", strings.Repeat("x", maxNickBytes))
	b.hears(t, "* "+a.nick+" is now "+strings.Repeat("x", maxNickBytes))
	b.says(t, "/quit\nnever said")
	_, err := io.ReadAll(b.lines)
	require.NoError(t, err)
	b.Close()
	a.hears(t, "* bob has left")
	c := join(t, addr)
	c.says(t, "/nick bob") // free again
	a.hears(t, "* "+c.nick+" is now bob")
	c.Close()
	a.hears(t, "* bob has left")
}

func TestAStalledPersonSlowsNobodyAndMissesWholeLines(t *testing.T) {
	srv := newServer()
	srv.Socket = transport.SocketConfig{SendBufferBytes: 32 << 10} // the kernel takes little
	addr := servertest.StartTCP(t, srv)
	stalled, a, b := join(t, addr), join(t, addr), join(t, addr)
	a.hears(t, "* "+b.nick+" has joined")
	const lines = 20_000 // 10 MB for somebody who does not read
	text := strings.Repeat("x", 490)
	for i := range lines {
		a.says(t, "%d %s", i, text)
		if i%200 == 199 { // not faster than the room
			a.hears(t, fmt.Sprintf("<%s> %d %s", a.nick, i, text))
			for j := i - 199; j <= i; j++ {
				b.hears(t, fmt.Sprintf("<%s> %d %s", a.nick, j, text))
			}
		}
	}
	a.says(t, "the end")
	b.hears(t, "<"+a.nick+"> the end")

	heard, missed, last := 0, 0, -1
	for {
		line, err := stalled.read()
		require.NoError(t, err)
		if line == "<"+a.nick+"> the end" && missed > 0 {
			break
		}
		var n int
		if _, err := fmt.Sscanf(line, "* %d lines were left out", &n); err == nil {
			missed += n
		} else if _, err := fmt.Sscanf(line, "<"+a.nick+"> %d", &n); err == nil {
			require.Greater(t, n, last, "in order")
			require.True(t, strings.HasSuffix(line, text), "a whole line")
			last = n
			heard++
		}
	}
	assert.Equal(t, lines, heard+missed, "heard %d, told of %d left out", heard, missed)
	assert.Less(t, heard*500, 4<<20, "what was kept for somebody who did not read")
}

func TestALineThatIsTooLongEndsTheConnection(t *testing.T) {
	addr := servertest.StartTCP(t, newServer())
	a := join(t, addr)
	a.says(t, "%s", strings.Repeat("y", maxLineBytes))
	a.hears(t, "<"+a.nick+"> "+strings.Repeat("y", maxLineBytes))
	_, err := io.WriteString(a, strings.Repeat("y", maxLineBytes+1)) // without an end
	require.NoError(t, err)
	a.hears(t, "* "+errLineTooLong.Error())
	_, err = io.ReadAll(a.lines)
	require.NoError(t, err)
}

func TestShutdownSaysGoodbye(t *testing.T) {
	srv := newServer()
	addr := servertest.StartTCP(t, srv)
	a := join(t, addr)
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		done <- srv.Shutdown(ctx)
	}()
	a.hears(t, "* the server stops")
	_, err := io.ReadAll(a.lines)
	require.NoError(t, err)
	a.Close()
	require.NoError(t, <-done)
}

func TestLinesAreTheSameHoweverTheInputIsSplit(t *testing.T) {
	const input = "one\ntwo\r\n\n\r\nfive six\r seven\nunfinished"
	want := []string{"one", "two", "", "", "five six\r seven"}
	for size := 1; size <= len(input); size++ {
		var s splitter
		var got []string
		for rest := input; rest != ""; {
			n := min(size, len(rest))
			require.NoError(t, s.feed([]byte(rest[:n]), func(line []byte) error {
				got = append(got, string(line))
				return nil
			}))
			rest = rest[n:]
		}
		require.Equal(t, want, got, "pieces of %d", size)
		require.Equal(t, "unfinished", string(s.partial))
	}
}

func TestTheSplitterIsBounded(t *testing.T) {
	for _, tc := range []struct {
		bytes int
		ends  bool
		want  error
	}{
		{maxLineBytes - 1, false, nil},
		{maxLineBytes, false, nil},
		{maxLineBytes + 1, false, errLineTooLong},
		{maxLineBytes - 1, true, nil},
		{maxLineBytes, true, nil},
		{maxLineBytes + 1, true, errLineTooLong},
	} {
		for _, piece := range []int{1, 100, maxLineBytes + 2} {
			input := []byte(strings.Repeat("z", tc.bytes))
			if tc.ends {
				input = append(input, '\n')
			}
			var s splitter
			var err error
			for len(input) > 0 && err == nil {
				n := min(piece, len(input))
				err = s.feed(input[:n], func([]byte) error { return nil })
				input = input[n:]
			}
			assert.Equal(t, tc.want, err, "%d bytes in pieces of %d, ended %v", tc.bytes, piece, tc.ends)
		}
	}
}

func TestTerminalsAreNotSteered(t *testing.T) {
	assert.Equal(t, "?[2J hällo ?\ufffd", printable([]byte("\x1b[2J hällo \x07\xff")))
}
