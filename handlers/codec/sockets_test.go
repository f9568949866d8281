//go:build linux

package codec_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/internal/servertest"
	"github.com/weirnet/weir/pipeline"
)

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
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		address := servertest.Serve(t, kind, func() ([]any, error) {
			f, err := codec.NewLines(codec.LinesConfig{FinalLine: true})
			return []any{f, &lineEcho{inactive}}, err
		})
		dial := func() *net.TCPConn { return servertest.DialTCP(t, address) }
		bystander, victim := dial(), dial()
		_, err := bystander.Write([]byte("on"))
		require.NoError(t, err)
		_, err = victim.Write([]byte("panic\nnever\nseen"))
		require.NoError(t, err)
		assert.ErrorContains(t, servertest.Receive(t, inactive, "the end of a channel"), "told to")
		text, _ := io.ReadAll(victim)
		assert.Empty(t, text)
		_, err = bystander.Write([]byte("e\r\ntwo\nthree"))
		require.NoError(t, err)
		require.NoError(t, bystander.CloseWrite())
		text, err = io.ReadAll(bystander)
		require.NoError(t, err)
		assert.Equal(t, "<one>\n<two>\n<three>\n", string(text))
		assert.NoError(t, servertest.Receive(t, inactive, "the end of a channel"))
	})
}

// mirror answers each frame with itself.
type mirror struct{}

func (mirror) ChannelRead(ctx *pipeline.Context, msg any) error { return ctx.Write(msg) }

func TestFramesOfAllSizesComeBackOverSockets(t *testing.T) {
	const frames, most = 300, 100_000
	servertest.Each(t, func(t *testing.T, kind weir.Kind) {
		c := servertest.DialTCP(t, servertest.Serve(t, kind, func() ([]any, error) {
			prepender, err := codec.NewLengthFieldPrepender(codec.LengthFieldPrependerConfig{Width: 3})
			if err != nil {
				return nil, err
			}
			f, err := codec.NewLengthField(codec.LengthFieldConfig{Width: 3, Strip: 3, MaxBytes: most + 3})
			return []any{prepender, f, mirror{}}, err
		}))
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
