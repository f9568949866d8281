//go:build linux

package codec_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/pipeline"
)

// patience bounds every wait.
const patience = 30 * time.Second

// serve runs a server whose pipelines init fills, on each transport, and returns how to connect to it.
func serve(t *testing.T, init func(*pipeline.Pipeline) error, test func(t *testing.T, dial func() *net.TCPConn)) {
	for _, kind := range []weir.Kind{weir.Epoll, weir.Uring} {
		t.Run("transport="+string(kind), func(t *testing.T) {
			srv := &weir.Server{Transport: kind, Loops: 1, Logger: slog.New(slog.DiscardHandler), Init: init}
			addr, err := srv.Listen("tcp", "127.0.0.1:0")
			testenv.Require(t, string(kind), err)
			t.Cleanup(func() { assert.NoError(t, srv.Close()) })
			test(t, func() *net.TCPConn {
				c, err := net.DialTimeout("tcp", addr.String(), patience)
				require.NoError(t, err)
				t.Cleanup(func() { c.Close() })
				require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
				return c.(*net.TCPConn)
			})
		})
	}
}

// lineEcho answers lines, panics at one, and says when its channel is closed.
type lineEcho struct{ inactive chan<- error }

func (*lineEcho) ChannelRead(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	if string(b.Bytes()) == "panic" {
		panic("told to")
	}
	return ctx.WriteBytes([]byte("<"), b.Bytes(), []byte(">\n"))
}

func (e *lineEcho) ChannelInactive(ctx *pipeline.Context) error {
	select {
	case e.inactive <- ctx.Cause():
	default:
	}
	return nil
}

func TestAPanicBehindAFramerClosesItsChannelAndNoOther(t *testing.T) {
	inactive := make(chan error, 16)
	serve(t, func(p *pipeline.Pipeline) error {
		f, err := codec.NewLines(codec.LinesConfig{FinalLine: true})
		if err != nil {
			return err
		}
		if err := p.AddLast("lines", f); err != nil {
			return err
		}
		return p.AddLast("app", &lineEcho{inactive})
	}, func(t *testing.T, dial func() *net.TCPConn) {
		bystander, victim := dial(), dial()
		_, err := bystander.Write([]byte("on"))
		require.NoError(t, err)
		_, err = victim.Write([]byte("panic\nnever\nseen"))
		require.NoError(t, err)
		assert.ErrorContains(t, await(t, inactive), "told to")
		text, _ := io.ReadAll(victim)
		assert.Empty(t, text)
		_, err = bystander.Write([]byte("e\r\ntwo\nthree"))
		require.NoError(t, err)
		require.NoError(t, bystander.CloseWrite())
		text, err = io.ReadAll(bystander)
		require.NoError(t, err)
		assert.Equal(t, "<one>\n<two>\n<three>\n", string(text))
		assert.NoError(t, await(t, inactive))
	})
}

func await(t *testing.T, inactive <-chan error) error {
	select {
	case cause := <-inactive:
		return cause
	case <-time.After(patience):
		require.Fail(t, "nobody was told that the channel closed")
		return nil
	}
}

// mirror answers each frame with itself.
type mirror struct{}

func (mirror) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func TestFramesOfAllSizesComeBackOverSockets(t *testing.T) {
	const frames, most = 300, 100_000
	serve(t, func(p *pipeline.Pipeline) error {
		prepender, err := codec.NewLengthFieldPrepender(codec.LengthFieldPrependerConfig{Width: 3})
		if err != nil {
			return err
		}
		f, err := codec.NewLengthField(codec.LengthFieldConfig{Width: 3, Strip: 3, MaxBytes: most + 3})
		if err != nil {
			return err
		}
		for _, h := range []any{prepender, f, mirror{}} {
			if err := p.AddLast("", h); err != nil {
				return err
			}
		}
		return nil
	}, func(t *testing.T, dial func() *net.TCPConn) {
		random := rand.New(rand.NewPCG(1, 2))
		var all strings.Builder
		for i := range frames {
			n := random.IntN(50)
			if i%10 == 0 {
				n = random.IntN(most + 1)
			}
			all.Write(binary.BigEndian.AppendUint32(nil, uint32(n))[1:])
			all.WriteString(strings.Repeat(string(rune('a'+i%26)), n))
		}
		c := dial()
		written := make(chan error, 1)
		go func() {
			w := bufio.NewWriterSize(c, 1000)
			_, err := io.Copy(w, strings.NewReader(all.String()))
			if err == nil {
				err = w.Flush()
			}
			if err == nil {
				err = c.CloseWrite()
			}
			written <- err
		}()
		back, err := io.ReadAll(c)
		require.NoError(t, err)
		require.NoError(t, <-written)
		assert.True(t, all.String() == string(back), "%d bytes became %d", all.Len(), len(back))
	})
}
