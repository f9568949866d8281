package weir

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/weirnet/weir/pipeline"
)

// endTimeout is how long a Server or Dialer that has been stopped waits for a handler that does not return. It is
// more than the second that a loop gives its channels to close.
const endTimeout = 2 * time.Second

// stuck joins a *loop.StuckError for each loop that does not go on; nil when all do.
func (e *engine) stuck() error {
	var errs []error
	for _, w := range e.workers {
		select {
		case <-w.loop.Done():
		default:
			errs = append(errs, w.loop.StuckError())
		}
	}
	return errors.Join(errs...)
}

// culprit names what is at work in the stack of a loop's goroutine: the method of a handler, or what else weir has
// called, and the channel. Any goroutine.
func (w *worker) culprit(stack []byte) string {
	who := pipeline.HandlerAt(stack)
	if who == "" {
		who = calledBy(stack)
	}
	if id, ok := w.channelIn(stack); ok {
		return fmt.Sprintf("%s on channel %#x", who, id)
	}
	return who
}

// packages is what the names of weir's functions begin with in a stack.
func packages() string { return reflect.TypeFor[Server]().PkgPath() }

// calledBy is the outermost function of the user's: an Init, a hook, a task. The frames are innermost first.
func calledBy(stack []byte) string {
	called := ""
	for line := range bytes.Lines(stack) {
		name, isCall := strings.CutSuffix(strings.TrimSpace(string(line)), ")")
		open := strings.LastIndexByte(name, '(')
		if line[0] == '\t' || !isCall || open < 0 {
			continue
		}
		if strings.HasPrefix(name, packages()+"/") || strings.HasPrefix(name, packages()+".") {
			break
		}
		called = name[:open]
	}
	return called[strings.LastIndexByte(called, '/')+1:]
}

// channelIn is the ID of the channel that is at work in a stack. A loop notes nothing before it calls a channel,
// because it would have to for every event; but the frames of package channel show the address of theirs. What is
// shown may be stale, hence only an address that is a channel's counts.
func (w *worker) channelIn(stack []byte) (id uint64, ok bool) {
	frames := regexp.MustCompile(regexp.QuoteMeta(packages()+"/channel.") + `\S*\(\{?(0x[0-9a-f]+)`)
	shown := map[string]bool{}
	for _, m := range frames.FindAllSubmatch(stack, -1) {
		shown[string(m[1])] = true
	}
	if len(shown) == 0 {
		return 0, false
	}
	w.listing.Lock()
	defer w.listing.Unlock()
	for i := range w.channels {
		for _, c := range w.channels[i].Channels() {
			if shown[fmt.Sprintf("%p", c)] {
				return c.ID(), true
			}
		}
	}
	return 0, false
}
