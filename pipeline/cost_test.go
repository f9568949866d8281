package pipeline_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/internal/invariants"
	"github.com/weirnet/weir/pipeline"
)

func TestContextStaysSmall(t *testing.T) {
	// One for each handler of each connection: 96 bytes are a size class of Go's allocator.
	assert.LessOrEqual(t, reflect.TypeFor[pipeline.Context]().Size(), uintptr(96))
	assert.LessOrEqual(t, reflect.TypeFor[pipeline.Pipeline]().Size(), uintptr(320))
}

// framer writes a length before what passes, from scratch memory on its stack.
type framer struct{ pass }

func (framer) Write(ctx *pipeline.Context, msg any) error {
	b := msg.(*buffer.Buf)
	header := [2]byte{byte(b.Len() >> 8), byte(b.Len())}
	return ctx.WriteBytes(header[:], b.Bytes())
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	if invariants.Enabled {
		t.Skip("invariant builds write down who holds buffers")
	}
	inbound := newBare(pass{}, pass{}, pass{}, &sink{})
	direct := newBare(pass{}, framer{}, &sink{})
	encoded := newBare(pass{}, pass{}, &sink{})
	app := direct.pipe.Context("sink")
	behind := encoded.pipe.Context("sink")
	msg := buffer.Wrap([]byte("message"))
	var scratch buffer.Buf
	body := []byte("body")
	headOnly := newBare(&sink{})
	first := headOnly.pipe.Context("sink")

	for name, fn := range map[string]func(){
		"FireRead through four":    func() { inbound.pipe.FireRead(msg) },
		"FireRead of scratch view": func() { inbound.pipe.FireRead(msg.Scratch(&scratch, 0, 4)) },
		"FireReadComplete":         func() { inbound.pipe.FireReadComplete() },
		"Write to the channel":     func() { check(first.Write(msg)) },
		"Write through encoders":   func() { check(app.Write(msg)) },
		"WriteBytes": func() {
			var header [4]byte
			header[3] = byte(len(body))
			check(first.WriteBytes(header[:], body))
		},
		"WriteBytes through encoders": func() {
			var header [4]byte
			check(behind.WriteBytes(header[:], body))
			encoded.pipe.FireFlush()
		},
		"Out":                         func() { first.Out().AppendByte('x') },
		"Out through encoders":        func() { behind.Out().AppendByte('x'); encoded.pipe.FireFlush() },
		"EndMessage":                  func() { first.Out().AppendByte('x'); check(first.EndMessage()) },
		"EndMessage through encoders": func() { behind.Out().AppendByte('x'); check(behind.EndMessage()) },
		"Pause and Resume":            func() { app.Pause(); app.Resume() },
		"Reading":                     func() { _ = app.Reading() },
		"SetWritable":                 func() { app.SetWritable(false); app.SetWritable(true) },
		"Flush":                       func() { check(app.Flush()) },
		"FireFlush":                   func() { direct.pipe.FireFlush() },
		"ReadGrant":                   func() { direct.pipe.ReadGrant() },
	} {
		t.Run(name, func(t *testing.T) {
			fn() // pools and lists grow once
			assert.Zero(t, testing.AllocsPerRun(200, fn))
		})
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func BenchmarkFireRead(b *testing.B) {
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("handlers=%d", n), func(b *testing.B) {
			var handlers []any
			for range n - 1 {
				handlers = append(handlers, pass{})
			}
			c := newBare(append(handlers, &sink{})...)
			msg := buffer.Wrap([]byte("message"))
			b.ReportAllocs()
			for b.Loop() {
				c.pipe.FireRead(msg)
			}
		})
	}
}

func BenchmarkFireReadComplete(b *testing.B) {
	c := newBare(pass{}, pass{}, pass{}, &sink{})
	b.ReportAllocs()
	for b.Loop() {
		c.pipe.FireReadComplete()
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{0, 1, 2, 4} {
		b.Run(fmt.Sprintf("encoders=%d", n), func(b *testing.B) {
			var handlers []any
			for range n {
				handlers = append(handlers, pass{})
			}
			c := newBare(append(handlers, &sink{})...)
			ctx := c.pipe.Context("sink")
			msg := buffer.Wrap([]byte("message"))
			b.ReportAllocs()
			for b.Loop() {
				check(ctx.Write(msg))
			}
		})
	}
}

func BenchmarkWriteBytes(b *testing.B) {
	for _, size := range []int{64, 1024, 65536} {
		for _, encoders := range []int{0, 1} {
			b.Run(fmt.Sprintf("size=%d/encoders=%d", size, encoders), func(b *testing.B) {
				handlers := []any{&sink{}}
				if encoders == 1 {
					handlers = []any{pass{}, &sink{}}
				}
				c := newBare(handlers...)
				ctx := c.pipe.Context("sink")
				body := make([]byte, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					var header [4]byte
					header[0] = byte(size)
					check(ctx.WriteBytes(header[:], body))
					c.pipe.FireFlush()
				}
			})
		}
	}
}

func BenchmarkPauseResume(b *testing.B) {
	c := newBare(pass{}, &sink{})
	ctx := c.pipe.Context("sink")
	b.ReportAllocs()
	for b.Loop() {
		ctx.Pause()
		ctx.Resume()
	}
}

func BenchmarkAddLast(b *testing.B) {
	b.ReportAllocs()
	pool := buffer.NewPool(buffer.PoolConfig{})
	s := &sink{}
	for b.Loop() {
		c := &bareChannel{pool: pool}
		c.pipe.init(c)
		check(c.pipe.AddLast("first", pass{}))
		check(c.pipe.AddLast("second", framer{}))
		check(c.pipe.AddLast("third", s))
		c.pipe.RemoveAll()
	}
}
