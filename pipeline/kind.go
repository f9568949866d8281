package pipeline

// kinds is the set of handler interfaces a value has.
type kinds uint16

const (
	kindRead kinds = 1 << iota
	kindReadComplete
	kindActive
	kindInactive
	kindReadClosed
	kindError
	kindEvent
	kindWritability
	kindResume
	kindGrant
	kindShutdown
	kindWrite
	kindFlush
	kindClose
	kindAdded
	kindRemoved
)

// kindsOf asserts every interface once; zero means that h is not a handler.
func kindsOf(h any) kinds {
	return inboundKinds(h) | outboundKinds(h)
}

func inboundKinds(h any) (k kinds) {
	if _, ok := h.(ReadHandler); ok {
		k |= kindRead
	}
	if _, ok := h.(ReadCompleteHandler); ok {
		k |= kindReadComplete
	}
	if _, ok := h.(ActiveHandler); ok {
		k |= kindActive
	}
	if _, ok := h.(InactiveHandler); ok {
		k |= kindInactive
	}
	if _, ok := h.(ReadClosedHandler); ok {
		k |= kindReadClosed
	}
	if _, ok := h.(ErrorHandler); ok {
		k |= kindError
	}
	if _, ok := h.(EventHandler); ok {
		k |= kindEvent
	}
	if _, ok := h.(WritabilityHandler); ok {
		k |= kindWritability
	}
	if _, ok := h.(ResumeHandler); ok {
		k |= kindResume
	}
	if _, ok := h.(GrantHandler); ok {
		k |= kindGrant
	}
	if _, ok := h.(ShutdownHandler); ok {
		k |= kindShutdown
	}
	return k
}

func outboundKinds(h any) (k kinds) {
	if _, ok := h.(WriteHandler); ok {
		k |= kindWrite
	}
	if _, ok := h.(FlushHandler); ok {
		k |= kindFlush
	}
	if _, ok := h.(CloseHandler); ok {
		k |= kindClose
	}
	if _, ok := h.(AddedHandler); ok {
		k |= kindAdded
	}
	if _, ok := h.(RemovedHandler); ok {
		k |= kindRemoved
	}
	return k
}
