package pipeline

import (
	"fmt"
	"math/bits"
	"reflect"
)

// notQuite returns an error that names a method of h which has the name of a handler interface's and another signature:
// nobody would ever call it. A Write, Flush or Close without a Context is something else. k are the interfaces that h
// has.
func notQuite(h any, k kinds) error {
	t := reflect.TypeOf(h)
	if t == nil || t.NumMethod() == bits.OnesCount16(uint16(k)) {
		return nil // the usual case, and cheap: no method is left
	}
	for missing := kinds(1); missing <= kindRemoved && missing != 0; missing <<= 1 {
		if k&missing != 0 {
			continue
		}
		m, ok := methodOf(t, missing)
		if !ok || missing&(kindWrite|kindFlush|kindClose) != 0 && !takesContext(m.Type) {
			continue
		}
		return fmt.Errorf("%w: the %s of %T is a %v, not a %v", ErrNotHandler, m.Name, h, signature(m.Type), wanted(missing))
	}
	return nil
}

// methodOf finds the method of the interface k. The names are constants, so that the linker can leave out methods that
// nobody calls.
func methodOf(t reflect.Type, k kinds) (reflect.Method, bool) {
	switch k {
	case kindRead:
		return t.MethodByName("ChannelRead")
	case kindReadComplete:
		return t.MethodByName("ChannelReadComplete")
	case kindActive:
		return t.MethodByName("ChannelActive")
	case kindInactive:
		return t.MethodByName("ChannelInactive")
	case kindReadClosed:
		return t.MethodByName("ChannelReadClosed")
	case kindError:
		return t.MethodByName("ErrorCaught")
	case kindEvent:
		return t.MethodByName("ChannelEvent")
	case kindWritability:
		return t.MethodByName("ChannelWritabilityChanged")
	case kindResume:
		return t.MethodByName("ChannelResume")
	case kindGrant:
		return t.MethodByName("ReadGrant")
	case kindShutdown:
		return t.MethodByName("ChannelShutdown")
	case kindWrite:
		return t.MethodByName("Write")
	case kindFlush:
		return t.MethodByName("Flush")
	case kindClose:
		return t.MethodByName("Close")
	case kindAdded:
		return t.MethodByName("HandlerAdded")
	default:
		return t.MethodByName("HandlerRemoved")
	}
}

// wanted is the signature of the method of the interface k.
func wanted(k kinds) reflect.Type {
	switch k {
	case kindRead, kindEvent, kindWrite:
		return reflect.TypeFor[func(*Context, any) error]()
	case kindError:
		return reflect.TypeFor[func(*Context, error) error]()
	case kindGrant:
		return signature(reflect.TypeOf(GrantHandler.ReadGrant))
	default:
		return reflect.TypeFor[func(*Context) error]()
	}
}

// signature is a method's type without its receiver.
func signature(method reflect.Type) reflect.Type {
	in := make([]reflect.Type, method.NumIn()-1)
	for i := range in {
		in[i] = method.In(i + 1)
	}
	out := make([]reflect.Type, method.NumOut())
	for i := range out {
		out[i] = method.Out(i)
	}
	return reflect.FuncOf(in, out, method.IsVariadic())
}

func takesContext(method reflect.Type) bool {
	return method.NumIn() > 1 && method.In(1) == reflect.TypeFor[*Context]()
}
