package watermark

// WaitAtShared is what a Handler does that has seen its first shared level high, which may have fallen meanwhile.
func (h *Handler) WaitAtShared() { h.subs[0].rose(false) }

// Followers and Follows are how many others h is tied to.
func (h *Handler) Followers() int { return len(h.followers) }
func (h *Handler) Follows() int   { return len(h.follows) }
