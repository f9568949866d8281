package redistest

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// clockSlack is by how much times to live may differ: the two servers read the clock at different moments, and the
// machine may be slow. In the generated requests all times are further apart than that.
const clockSlack = 60_000 // milliseconds

// exception is what is compared where replies need not be the same bytes, and why not. Errors, and replies of another
// kind, are compared byte for byte all the same.
type exception struct {
	why  string
	same func(theirs, ours *Reply) bool
}

// exceptionOf returns the exception for a request, if there is one.
func exceptionOf(args []string) (e exception, ok bool) {
	name := strings.ToLower(args[0])
	if name == "client" && len(args) > 1 {
		name += "|" + strings.ToLower(args[1])
	}
	switch name {
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
	case "hello":
		return exception{"clients are counted otherwise", sameLength}, true
	case "client|id":
		return exception{"clients are counted otherwise", sameKind}, true
	case "client|info":
		return exception{"Redis knows more of a client", sameKind}, true
	case "command":
		return exception{"Redis has more commands", sameKind}, true
	}
	return exception{}, false
}

// compare returns nil when our reply to a request is as good as theirs. EXEC has a reply for each request in queued.
func compare(args []string, queued [][]string, theirWire, ourWire []byte) error {
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
	if n := len(queued); strings.EqualFold(args[0], "exec") && len(theirs.Elems) == n && len(ours.Elems) == n && n > 0 {
		for i, args := range queued {
			if err := compare(args, nil, theirs.Elems[i].wire, ours.Elems[i].wire); err != nil {
				return fmt.Errorf("in a transaction: %w", err)
			}
		}
		return nil
	}
	if e, ok := exceptionOf(args); ok {
		if e.same(&theirs, &ours) {
			return nil
		}
		return fmt.Errorf("on %.200q redis replies %.500q and we %.500q (compared loosely: %s)",
			args, theirWire, ourWire, e.why)
	}
	return fmt.Errorf("on %.200q redis replies %.500q and we %.500q", args, theirWire, ourWire)
}

func sameKind(theirs, ours *Reply) bool {
	return theirs.Kind == ours.Kind && theirs.Kind != '-' && theirs.null() == ours.null()
}

func sameLength(theirs, ours *Reply) bool {
	return sameKind(theirs, ours) && len(theirs.Elems) == len(ours.Elems)
}

func closeIntegers(slack int64) func(theirs, ours *Reply) bool {
	return func(theirs, ours *Reply) bool {
		his, err := strconv.ParseInt(string(theirs.Bytes), 10, 64)
		mine, err2 := strconv.ParseInt(string(ours.Bytes), 10, 64)
		diff := his - mine
		return sameKind(theirs, ours) && theirs.Kind == ':' && err == nil && err2 == nil && his > slack &&
			-slack < diff && diff < slack
	}
}

// sameElements compares arrays as sets of groups of that many elements.
func sameElements(group int) func(theirs, ours *Reply) bool {
	groups := func(v *Reply) (list []string) {
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
	return func(theirs, ours *Reply) bool {
		return sameLength(theirs, ours) && slices.Equal(groups(theirs), groups(ours))
	}
}

// taken are the members that SPOP has returned, sorted.
func taken(v *Reply) (list []string) {
	if v.Kind == '$' && !v.null() {
		list = append(list, string(v.Bytes))
	}
	for _, e := range v.Elems {
		list = append(list, string(e.Bytes))
	}
	slices.Sort(list)
	return list
}
