package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// LengthFieldPrependerConfig describes the length before each message that is written.
type LengthFieldPrependerConfig struct {
	// ByteOrder is binary.BigEndian or binary.LittleEndian. Nil means big endian.
	ByteOrder binary.ByteOrder
	// Width is how many bytes the length has: 1, 2, 3, 4 or 8.
	Width int
	// Adjustment is added to the length.
	Adjustment int
	// IncludesLength makes the length count itself.
	IncludesLength bool
}

// Prepender is the handler that writes the length of each message (*buffer.Buf, []byte, string, *pipeline.FileRegion)
// before it; other messages pass. Where another WriteHandler stands before it, header and message go on as one message,
// which costs a copy; but a file region goes on behind its header. A handler there that refuses the region breaks the
// stream: the channel is aborted. A Prepender belongs to its channel's loop and stands in one pipeline.
type Prepender struct {
	put     func(header []byte, n int64) (int, error) // writes the length of a message of n bytes
	scratch [binary.MaxVarintLen64]byte
	added   bool
}

var (
	_ pipeline.WriteHandler = (*Prepender)(nil)
	_ pipeline.AddedHandler = (*Prepender)(nil)
)

// NewLengthFieldPrepender returns the counterpart of NewLengthField. A message whose length the field cannot hold is
// refused with ErrEncode.
func NewLengthFieldPrepender(cfg LengthFieldPrependerConfig) (*Prepender, error) {
	const what = "length field prepender"
	little, known := isLittle(cfg.ByteOrder)
	switch w := cfg.Width; {
	case !known:
		return nil, badConfig(what, "ByteOrder", cfg.ByteOrder)
	case w != 1 && w != 2 && w != 3 && w != 4 && w != 8:
		return nil, badConfig(what, "Width", w)
	case cfg.Adjustment < -math.MaxInt32 || cfg.Adjustment > math.MaxInt32:
		return nil, badConfig(what, "Adjustment", cfg.Adjustment)
	}
	width, add := cfg.Width, int64(cfg.Adjustment)
	if cfg.IncludesLength {
		add += int64(width)
	}
	return &Prepender{put: func(header []byte, n int64) (int, error) {
		if n > math.MaxInt64-1<<33 || n+add < 0 || width < 8 && n+add >= 1<<(8*width) {
			return 0, fmt.Errorf("%w: a length of %d and %d in %d bytes", ErrEncode, n, add, width)
		}
		putLength(header[:width], uint64(n+add), little)
		return width, nil
	}}, nil
}

// NewVarint32Prepender returns the counterpart of NewVarint32.
func NewVarint32Prepender() *Prepender {
	return &Prepender{put: func(header []byte, n int64) (int, error) {
		if n > math.MaxUint32 {
			return 0, fmt.Errorf("%w: a length of %d in 32 bits", ErrEncode, n)
		}
		return binary.PutUvarint(header, uint64(n)), nil
	}}
}

// HandlerAdded refuses a second place: two loops would write their lengths into one memory.
func (p *Prepender) HandlerAdded(ctx *pipeline.Context) error {
	if p.added {
		return fmt.Errorf("codec: add %q: %w", ctx.Name(), ErrReused)
	}
	p.added = true
	return nil
}

// Write borrows msg until return.
func (p *Prepender) Write(ctx *pipeline.Context, msg any) error {
	n := int64(0)
	switch m := msg.(type) {
	case *buffer.Buf:
		n = int64(m.Len())
	case []byte:
		n = int64(len(m))
	case string:
		n = int64(len(m))
	case *pipeline.FileRegion:
		if m.File == nil || m.Offset < 0 {
			return fmt.Errorf("%w: a file region from %d on, with a file: %v", ErrEncode, m.Offset, m.File != nil)
		}
		n = m.Length
	default:
		return ctx.Write(msg)
	}
	if n < 0 {
		return fmt.Errorf("%w: a length of %d", ErrEncode, n)
	}
	header, err := p.put(p.scratch[:], n)
	if err != nil {
		return err
	}
	out := ctx.Out()
	out.Append(p.scratch[:header])
	if _, file := msg.(*pipeline.FileRegion); !file && ctx.PassesWriteHandlers() {
		out.Reserve(int(n))
		appendTo(out, msg)
		return ctx.EndMessage()
	}
	if err = ctx.Write(msg); err != nil && !errors.Is(err, pipeline.ErrClosed) { // then the length was thrown away, too
		ctx.Abort(err) // the peer would take what is written next for this message
	}
	return err
}

func appendTo(out *buffer.Buf, msg any) {
	switch m := msg.(type) {
	case *buffer.Buf:
		out.Append(m.Bytes())
	case []byte:
		out.Append(m)
	case string:
		out.AppendString(m)
	}
}

func putLength(p []byte, v uint64, little bool) {
	for i := range p {
		at := len(p) - 1 - i
		if little {
			at = i
		}
		p[at] = byte(v)
		v >>= 8
	}
}
