package sys

// Detached is the non-blocking descriptor of a connected socket that no transport has.
type Detached int

// Close closes it with RST.
func (d Detached) Close() {
	ResetOnClose(int(d))
	Close(int(d))
}
