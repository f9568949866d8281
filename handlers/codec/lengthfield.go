package codec

import (
	"encoding/binary"
	"math"
)

// LengthFieldConfig describes frames that say how long they are. A frame is
//
//	Offset bytes, a length of Width bytes, length + Adjustment bytes
//
// so with a length that counts the whole frame, Adjustment is -(Offset + Width).
type LengthFieldConfig struct {
	// ByteOrder is binary.BigEndian or binary.LittleEndian. Nil means big endian.
	ByteOrder binary.ByteOrder
	// Offset is how many bytes come before the length.
	Offset int
	// Width is how many bytes the length has, 1 to 8. It is unsigned.
	Width int
	// Adjustment is added to the length, to make it that of what follows it.
	Adjustment int
	// Strip is how many bytes at the front of a frame are not handed on. A frame that is shorter is a bad frame.
	Strip int
	// MaxBytes bounds a whole frame, header included. Zero means 1 MiB.
	MaxBytes int
	// FailSlow reports a frame that is too long when all of it has come, instead of at once.
	FailSlow bool
}

// NewLengthField returns a handler that cuts at length fields. A frame that is too long is reported and skipped, one
// that is shorter than Strip too; a length above the range of int64, or one that ends inside the header, ends the
// stream: where the next frame begins is not known.
func NewLengthField(cfg LengthFieldConfig) (*Framer, error) { return framer(SplitLengthField(cfg)) }

// SplitLengthField is the Splitter of NewLengthField.
func SplitLengthField(cfg LengthFieldConfig) (Splitter, error) {
	const what = "length field"
	most, err := limit(what, cfg.MaxBytes)
	if err != nil {
		return nil, err
	}
	little, known := isLittle(cfg.ByteOrder)
	switch {
	case !known:
		return nil, badConfig(what, "ByteOrder", cfg.ByteOrder)
	case cfg.Width < 1 || cfg.Width > 8:
		return nil, badConfig(what, "Width", cfg.Width)
	case cfg.Offset < 0 || cfg.Offset > most-cfg.Width:
		return nil, badConfig(what, "Offset", cfg.Offset)
	case cfg.Strip < 0 || cfg.Strip > most:
		return nil, badConfig(what, "Strip", cfg.Strip)
	case cfg.Adjustment < -math.MaxInt32 || cfg.Adjustment > math.MaxInt32:
		return nil, badConfig(what, "Adjustment", cfg.Adjustment)
	}
	return &lengthField{
		width: cfg.Width, offset: cfg.Offset, header: cfg.Offset + cfg.Width, beyond: cfg.Offset + cfg.Width + cfg.Adjustment,
		strip: cfg.Strip, max: most, little: little, slow: cfg.FailSlow,
	}, nil
}

type lengthField struct {
	width, offset int
	header        int // bytes up to the end of the length
	beyond        int // what a frame has besides what its length counts
	strip, max    int
	little, slow  bool
	skip          skip
}

func (l *lengthField) MaxMessageBytes() int { return l.max }

func (l *lengthField) Decode(in []byte) (Span, int, error) {
	if l.skip.left > 0 {
		n, err := l.skip.next(in)
		return Span{}, n, err
	}
	if len(in) < l.header {
		return Span{}, l.header, ErrShort
	}
	length := readLength(in[l.offset:l.header], l.little)
	if length > math.MaxInt64 {
		return Span{}, 0, badFrame("a length of %d", length)
	}
	total := int64(min(length, math.MaxInt64-1<<33)) + int64(l.beyond)
	switch {
	case uint64(total) <= uint64(len(in)) && total >= int64(max(l.strip, l.header)) && total <= int64(l.max):
		return Span{l.strip, int(total)}, int(total), nil
	case total < int64(l.header):
		return Span{}, 0, badFrame("a length of %d makes a frame of %d bytes, its header has %d", length, total, l.header)
	case total > int64(l.max):
		n, err := l.skip.begin(in, total, tooLong(total, l.max), l.slow)
		return Span{}, n, err
	case total > int64(len(in)):
		return Span{}, int(total), ErrShort
	}
	return Span{}, int(total), badFrame("a frame of %d bytes, of which %d are to be stripped", total, l.strip)
}

func (l *lengthField) Finish(in []byte) (Span, int, error) {
	if len(in) == 0 {
		return Span{}, 0, l.skip.finish()
	}
	return l.Decode(in)
}

func isLittle(o binary.ByteOrder) (little, known bool) {
	if o == nil {
		return false, true
	}
	switch o.Uint32([]byte{1, 2, 3, 4}) {
	case 0x04030201:
		return true, true
	case 0x01020304:
		return false, true
	}
	return false, false
}

// readLength reads the unsigned number that p, of 1 to 8 bytes, is.
func readLength(p []byte, little bool) (v uint64) {
	switch {
	case len(p) == 4 && !little:
		return uint64(binary.BigEndian.Uint32(p))
	case len(p) == 4:
		return uint64(binary.LittleEndian.Uint32(p))
	case little:
		for i := len(p) - 1; i >= 0; i-- {
			v = v<<8 | uint64(p[i])
		}
	default:
		for _, c := range p {
			v = v<<8 | uint64(c)
		}
	}
	return v
}
