package resp

import (
	"bytes"
	"strings"

	"github.com/weirnet/weir/handlers/codec"
)

// keptElements is how many arguments or values a parser keeps memory for between messages; what a larger message needed
// is given to the garbage collector.
const keptElements = 1024

// Command is a request. It belongs to the parser that returned it and is valid as long as the input it was parsed from,
// in a handler until ChannelRead returns.
type Command struct {
	// Args are the name and the arguments. They alias the input: they are neither to be kept nor changed. None: an
	// empty request, to which Redis does not reply.
	Args [][]byte
}

// span is where an argument lies in the input.
type span struct{ off, n uint32 }

// CommandParser takes requests, arrays of bulk strings or inline commands, from the front of a byte stream. It belongs
// to one channel's loop.
type CommandParser struct {
	cfg Config // set in NewCommandParser, then immutable

	cmd     Command
	spans   []span // arguments of the request under way
	left    int    // arguments it still lacks; 0: at the start of a request
	bulk    int    // length of the argument that is under way; -1: its header is
	pos     int    // offset of what is under way: a header or the bytes of an argument
	scanned int    // offset up to which no line end was found
	plain   []byte // inline arguments after their escapes are resolved
	failed  error  // the final error
}

var _ codec.Decoder[*Command] = (*CommandParser)(nil)

// NewCommandParser returns a parser at the start of a stream.
func NewCommandParser(cfg Config) (*CommandParser, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &CommandParser{cfg: cfg, bulk: -1}, nil
}

// Decode borrows in until return and returns the request at its front. With codec.ErrShort the next call's in begins
// with the same bytes: what has been looked at is not looked at again. An error that is ErrProtocol is final.
func (p *CommandParser) Decode(in []byte) (*Command, int, error) {
	if p.failed != nil {
		return nil, 0, p.failed
	}
	if p.left == 0 {
		if n := p.decodeShort(in); n > 0 {
			p.scanned = 0
			return &p.cmd, n, nil
		}
	}
	n, err := p.decode(in)
	if err != nil {
		if err != codec.ErrShort {
			p.failed = err
		}
		return nil, 0, err
	}
	p.scanned = 0
	return &p.cmd, n, nil
}

// decodeShort reads what nearly every request is: all there, within the limits, and of at most nine arguments. It
// returns 0 for anything else: then decode, which can go on where it stopped and knows the words of errors, begins
// anew.
func (p *CommandParser) decodeShort(in []byte) int {
	if len(in) < 4 || in[0] != '*' || in[1]-'1' > 8 || in[2] != '\r' || in[3] != '\n' {
		return 0
	}
	count := int(in[1] - '0')
	if count > p.cfg.MaxElements {
		return 0
	}
	args, pos := p.cmd.Args[:0], 4
	for range count {
		t := in[pos:]
		if len(t) < 6 || t[0] != '$' { // $0, its line end, and that of the argument
			return 0
		}
		n, start := int(t[1]-'0'), 4
		switch second := int(t[2] - '0'); {
		case n <= 9 && t[2] == '\r' && t[3] == '\n':
		case n <= 9 && n > 0 && second <= 9 && t[3] == '\r' && t[4] == '\n':
			n, start = 10*n+second, 5
		default:
			if n, start = shortLength(t, 1); start == 0 {
				return 0
			}
		}
		end := start + n
		pos += end + 2
		if n > p.cfg.MaxBulkBytes || pos > p.cfg.MaxMessageBytes ||
			end+1 >= len(t) || t[end] != '\r' || t[end+1] != '\n' {
			return 0
		}
		args = append(args, t[start:end:end])
	}
	p.cmd.Args = args
	return pos
}

func (p *CommandParser) decode(in []byte) (int, error) {
	if p.left == 0 {
		if len(in) == 0 {
			return 0, codec.ErrShort
		}
		if in[0] != '*' {
			return p.decodeInline(in)
		}
		count, next := shortLength(in, 1)
		if next == 0 || count > p.cfg.MaxElements {
			var err error
			if count, next, err = p.length(in, 0, p.cfg.MaxElements, reasonMultibulk, reasonBigMultibulk); err != nil {
				return 0, err
			}
		}
		if count <= 0 {
			p.cmd.Args = p.cmd.Args[:0]
			return next, nil
		}
		p.left, p.pos, p.spans = count, next, p.spans[:0]
	}
	if err := p.arguments(in); err != nil {
		return 0, err
	}
	args := p.cmd.Args[:0]
	for _, s := range p.spans {
		end := s.off + s.n
		args = append(args, in[s.off:end:end])
	}
	p.cmd.Args = args
	return p.pos, nil
}

// arguments goes on with the request under way until it lacks nothing.
func (p *CommandParser) arguments(in []byte) error {
	pos, bulk := p.pos, p.bulk
	for p.left > 0 {
		if bulk < 0 {
			next := 0
			if pos < len(in) && in[pos] == '$' {
				bulk, next = shortLength(in, pos+1)
			}
			if next == 0 || bulk > p.cfg.MaxBulkBytes {
				var err error
				if bulk, next, err = p.bulkLength(in, pos); err != nil {
					p.pos, p.bulk = pos, -1
					return err
				}
			}
			if bulk > p.cfg.MaxMessageBytes-next-2 {
				return protocolError(reasonMessage)
			}
			pos = next
		}
		if len(in)-pos < bulk+2 {
			// Redis does not look at the two bytes behind an argument. A wrong length would then hide requests inside
			// others, so we do, and as soon as the first is there.
			if len(in)-pos == bulk+1 && in[pos+bulk] != '\r' {
				return protocolError(reasonBulkEnd)
			}
			p.pos, p.bulk = pos, bulk
			return codec.ErrShort
		}
		if in[pos+bulk] != '\r' || in[pos+bulk+1] != '\n' {
			return protocolError(reasonBulkEnd)
		}
		p.spans = append(p.spans, span{uint32(pos), uint32(bulk)})
		pos += bulk + 2
		bulk = -1
		p.left--
	}
	p.pos, p.bulk = pos, bulk
	return nil
}

// bulkLength reads the header line of an argument, the slow way.
func (p *CommandParser) bulkLength(in []byte, start int) (n, next int, err error) {
	n, next, err = p.length(in, start, p.cfg.MaxBulkBytes, reasonBulk, reasonBigBulk)
	if err == codec.ErrShort || next < 0 {
		return 0, 0, err
	}
	// Redis looks at the type byte when it has the line, and before the number.
	if c := in[start]; c != '$' {
		return 0, 0, protocolError(expectedDollar(c))
	}
	if err == nil && n < 0 {
		err = protocolError(reasonBulk)
	}
	return n, next, err
}

// length reads the line "<type byte><number>\r\n" at in[start:]. next < 0 says that there was no line.
func (p *CommandParser) length(in []byte, start, limit int, bad, tooBig string) (n, next int, err error) {
	from := max(start, p.scanned)
	i := -1
	if from <= len(in) {
		i = bytes.IndexByte(in[from:], '\r')
	}
	if i < 0 {
		if len(in)-start > p.cfg.MaxLineBytes {
			return 0, -1, protocolError(tooBig)
		}
		p.scanned = len(in)
		return 0, -1, codec.ErrShort
	}
	end := from + i
	if end-start > p.cfg.MaxLineBytes {
		return 0, -1, protocolError(tooBig)
	}
	p.scanned = end
	if end+1 >= len(in) {
		return 0, -1, codec.ErrShort
	}
	v, ok := int64(0), false
	if end > start {
		v, ok = strictInt(in[start+1 : end])
	}
	if !ok || v > int64(limit) || in[end+1] != '\n' {
		return 0, 0, protocolError(bad)
	}
	return int(max(v, -1)), end + 2, nil
}

// trim lets go of the input of the last request, and of the memory that an unusually large one needed.
func (p *CommandParser) trim() {
	if cap(p.cmd.Args) > keptElements {
		p.cmd.Args = nil
	}
	if cap(p.spans) > keptElements && p.left == 0 {
		p.spans = nil
	}
	clear(p.cmd.Args[:cap(p.cmd.Args)])
}

// missing is the least number of bytes by which in must grow before Decode can do more with it.
func (p *CommandParser) missing(have int) int {
	if p.left == 0 || p.bulk < 0 {
		return 1
	}
	return max(1, p.pos+p.bulk+2-have)
}

// expectedDollar words the error about a wrong type byte as Redis does, which puts blanks for line breaks.
func expectedDollar(got byte) string {
	if got == '\r' || got == '\n' {
		got = ' '
	}
	return strings.Replace(redisReasonExpectedD, "%c", string([]byte{got}), 1)
}

// empty reports whether c is a request to which Redis does not reply.
func (p *CommandParser) empty(c *Command) bool { return len(c.Args) == 0 }
