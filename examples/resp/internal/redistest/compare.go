package redistest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/handlers/codec/resp"
)

// clockSlack is by how much times to live may differ: the two servers read the clock at different moments, and the
// machine may be slow. In the generated requests all times are further apart than that.
const clockSlack = 60_000 // milliseconds

// exception is what is compared where replies need not be the same bytes, and why not. Errors, and replies of another
// kind, are compared byte for byte all the same.
type exception struct {
	why  string
	same func(theirs, ours *resp.Value) bool
}

// exceptionOf returns the exception for a command, if there is one.
func exceptionOf(name string) (e exception, ok bool) {
	switch strings.ToLower(name) {
	case "smembers":
		return exception{"a set has no order", sameElements(1)}, true
	case "keys":
		return exception{"a database has no order", sameElements(1)}, true
	case "hgetall":
		return exception{"a hash has no order", sameElements(2)}, true
	case "config":
		return exception{"settings come in no order", sameElements(2)}, true
	case "ttl":
		return exception{"the clocks are read at different moments", closeIntegers(clockSlack / 1000)}, true
	case "pttl":
		return exception{"the clocks are read at different moments", closeIntegers(clockSlack)}, true
	case "spop":
		return exception{"members are random; how many, and that they were in the set, is compared", sameLength}, true
	case "info":
		return exception{"it describes another server", sameKind}, true
	case "command":
		return exception{"Redis has more commands", sameKind}, true
	}
	return exception{}, false
}

// compare returns nil when our reply to a request is as good as theirs.
func compare(args []string, theirWire, ourWire []byte) error {
	if bytes.Equal(theirWire, ourWire) {
		return nil
	}
	theirs, err := parse(theirWire)
	if err != nil {
		return err
	}
	ours, err := parse(ourWire)
	if err != nil {
		return err
	}
	if e, ok := exceptionOf(args[0]); ok {
		if e.same(theirs, ours) {
			return nil
		}
		return fmt.Errorf("on %.200q redis replies %.500q and we %.500q (compared loosely: %s)",
			args, theirWire, ourWire, e.why)
	}
	return fmt.Errorf("on %.200q redis replies %.500q and we %.500q", args, theirWire, ourWire)
}

func parse(wire []byte) (*resp.Value, error) {
	p, err := resp.NewValueParser(resp.Config{})
	if err != nil {
		return nil, err
	}
	v, n, err := p.Decode(wire)
	if err != nil || n != len(wire) {
		return nil, fmt.Errorf("not one reply: %.500q: %w", wire, err)
	}
	return v, nil
}

func sameKind(theirs, ours *resp.Value) bool {
	return theirs.Kind == ours.Kind && theirs.Kind != resp.Error
}

func sameLength(theirs, ours *resp.Value) bool {
	return sameKind(theirs, ours) && len(theirs.Elems) == len(ours.Elems)
}

func closeIntegers(slack int64) func(theirs, ours *resp.Value) bool {
	return func(theirs, ours *resp.Value) bool {
		diff := theirs.Int - ours.Int
		return sameKind(theirs, ours) && theirs.Kind == resp.Integer && theirs.Int > slack &&
			-slack < diff && diff < slack
	}
}

// sameElements compares arrays as sets of groups of that many elements.
func sameElements(group int) func(theirs, ours *resp.Value) bool {
	groups := func(v *resp.Value) (list []string) {
		for i := 0; i+group <= len(v.Elems); i += group {
			text := ""
			for _, e := range v.Elems[i : i+group] {
				text += strconv.Quote(string(e.Bytes)) + " "
			}
			list = append(list, text)
		}
		slices.Sort(list)
		return list
	}
	return func(theirs, ours *resp.Value) bool {
		return sameLength(theirs, ours) && slices.Equal(groups(theirs), groups(ours))
	}
}

// taken are the members that SPOP has returned, sorted.
func taken(v *resp.Value) (list []string) {
	switch v.Kind {
	case resp.Bulk:
		list = append(list, string(v.Bytes))
	case resp.Array:
		for _, e := range v.Elems {
			list = append(list, string(e.Bytes))
		}
	}
	slices.Sort(list)
	return list
}
