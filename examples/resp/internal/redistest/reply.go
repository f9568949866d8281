package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// errShort says that a reply goes on.
var errShort = errors.New("redistest: a reply is incomplete")

// Reply is a reply of either version of the protocol, read without any of the code that is to be tested.
type Reply struct {
	Kind  byte   // its type byte
	Bytes []byte // of a line or a string; nil: of a null
	Elems []Reply
	wire  []byte
}

// parse reads the reply that in begins with. It aliases in.
func parse(in []byte) (r Reply, err error) {
	end := bytes.Index(in, []byte("\r\n"))
	if end < 0 {
		return r, errShort
	}
	if end == 0 {
		return r, fmt.Errorf("redistest: not a reply: %.100q", in)
	}
	next := end + 2
	r.Kind, r.Bytes = in[0], in[1:end]
	switch r.Kind {
	case '+', '-', ':', '_', '#', ',', '(':
		r.wire = in[:next]
		return r, nil
	}
	n, err := strconv.Atoi(string(r.Bytes))
	if err != nil || n < -1 {
		return r, fmt.Errorf("redistest: a length of %q", r.Bytes)
	}
	switch r.Kind {
	case '$', '=':
		if r.Bytes = nil; n >= 0 {
			if len(in) < next+n+2 {
				return r, errShort
			}
			r.Bytes = in[next : next+n]
			next += n + 2
		}
	case '*', '~', '%', '>':
		r.Bytes = nil
		if r.Kind == '%' {
			n *= 2
		}
		for range n {
			e, err := parse(in[next:])
			if err != nil {
				return r, err
			}
			next += len(e.wire)
			r.Elems = append(r.Elems, e)
		}
	default:
		return r, fmt.Errorf("redistest: a reply of type %q", r.Kind)
	}
	r.wire = in[:next]
	return r, nil
}

// null reports whether there is nothing where something could be.
func (r *Reply) null() bool { return r.Kind == '_' || bytes.HasPrefix(r.wire[1:], []byte("-1\r\n")) }
