package pipeline

import (
	"bytes"
	"reflect"
	"strings"
)

// maxEmbedding is how deep HandlerIn looks for promoted methods.
const maxEmbedding = 4

// HandlerIn returns which handler panicked, given the text that runtime/debug.Stack returns in the deferred function
// that recovers: "name (package.Type)", names joined by "or" where several handlers of the type stand in the pipeline,
// "removed handler (package.Type)" for one that had just left it, or "" when the panic was in none. It costs nothing
// until then: it matches the names of the frames, innermost first, with the names that the compiler gives to the
// methods of the handlers' types and to the function literals in them.
func (p *Pipeline) HandlerIn(stack []byte) string {
	frames := frameNames(stack)
	self := symbolPath(reflect.TypeFor[Pipeline]().PkgPath()) + "."
	var names []methodsOf
	for c := p.end.next; c != &p.end; c = c.next {
		names = append(names, methodsOf{c, typePrefixes(nil, reflect.TypeOf(c.handler), 0)})
	}
	for i, frame := range frames {
		if strings.HasPrefix(frame, self+"(*Context).") || strings.HasPrefix(frame, self+"(*Pipeline).") ||
			strings.HasPrefix(frame, self+"(*Driver).") {
			if i > 0 && isInbound(frames[i-1]) {
				return "removed handler (" + receiver(frames[i-1]) + ")"
			}
			continue
		}
		if who := whose(frame, names); who != "" {
			return who
		}
	}
	return ""
}

// HandlerAt returns the method or function of a handler that is at work on the goroutine of stack, which a stuck loop's
// is: the innermost one that a pipeline has called, such as "main.(*handler).ChannelRead". It returns "" when there is
// none. Any goroutine; it looks at the text alone.
func HandlerAt(stack []byte) string {
	frames := frameNames(stack)
	self := symbolPath(reflect.TypeFor[Pipeline]().PkgPath()) + "."
	for i, frame := range frames {
		if i > 0 && strings.HasPrefix(frame, self) {
			called := frames[i-1]
			return called[strings.LastIndexByte(called, '/')+1:]
		}
	}
	return ""
}

// methodsOf holds what the names of a handler's methods begin with.
type methodsOf struct {
	ctx      *Context
	prefixes []string
}

func whose(frame string, handlers []methodsOf) string {
	var who []string
	var typ string
	for _, h := range handlers {
		for _, prefix := range h.prefixes {
			if strings.HasPrefix(frame, prefix) {
				who = append(who, h.ctx.name)
				typ = strings.TrimPrefix(reflect.TypeOf(h.ctx.handler).String(), "*")
				break
			}
		}
	}
	if who == nil {
		return ""
	}
	return strings.Join(who, " or ") + " (" + typ + ")"
}

// frameNames lists the functions of a stack, innermost first, from where it panicked, if it did.
func frameNames(stack []byte) []string {
	var names []string
	panicked := false
	for line := range bytes.Lines(stack) {
		name := strings.TrimSpace(string(line))
		open := strings.LastIndexByte(name, '(')
		if line[0] == '\t' || open < 0 {
			continue
		}
		name = name[:open]
		if name == "panic" && !panicked {
			panicked = true
			names = names[:0] // those were the deferred function's
			continue
		}
		names = append(names, name)
	}
	return names
}

// typePrefixes appends what the symbols of t's methods begin with, and those of the types it embeds: a promoted method
// runs under the embedded type's name.
func typePrefixes(to []string, t reflect.Type, depth int) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if name, _, generic := strings.Cut(t.Name(), "["); name != "" {
		if generic {
			name += "[...]" // as tracebacks print it
		}
		pkg := symbolPath(t.PkgPath()) + "."
		to = append(to, pkg+name+".", pkg+"(*"+name+").")
	}
	if t.Kind() != reflect.Struct || depth == maxEmbedding {
		return to
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() != reflect.Interface {
			to = typePrefixes(to, f.Type, depth+1)
		}
	}
	return to
}

// symbolPath escapes an import path as the compiler does in symbols: cmd/internal/objabi.PathToPrefix.
func symbolPath(path string) string {
	slash := strings.LastIndexByte(path, '/')
	var b strings.Builder
	for i := range len(path) {
		c := path[i]
		if c <= ' ' || c == '%' || c == '"' || c >= 0x7F || c == '.' && i > slash {
			const hex = "0123456789abcdef"
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// isInbound reports whether a frame is a handler's method that only a pipeline calls.
func isInbound(frame string) bool {
	switch frame[strings.LastIndexByte(frame, '.')+1:] {
	case "ChannelRead", "ChannelReadComplete", "ChannelActive", "ChannelInactive", "ChannelReadClosed", "ErrorCaught",
		"ChannelEvent", "ChannelWritabilityChanged", "ChannelResume", "ReadGrant", "ChannelShutdown", "HandlerAdded",
		"HandlerRemoved":
		return true
	}
	return false
}

// receiver is the package and type of a method's frame: "x/y.(*T).M" is "y.T".
func receiver(frame string) string {
	frame = frame[strings.LastIndexByte(frame, '/')+1:]
	frame = frame[:strings.LastIndexByte(frame, '.')]
	return strings.NewReplacer("(*", "", ")", "").Replace(frame)
}
