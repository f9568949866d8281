package watermark

// WaitAtShared is what a Handler does that has seen its first shared level high, which may have fallen meanwhile.
func (h *Handler) WaitAtShared() { h.subs[0].rose() }
