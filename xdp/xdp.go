// Package xdp attaches programs to network interfaces, where the driver runs them on each frame before the kernel
// makes a packet of it (XDP, Høiland-Jørgensen et al., CoNEXT 2018). An interface has room for one program, so
// weir's is a small entry that calls the others, the stages, in order. Package lb is such a stage.
//
// Linux only; elsewhere everything returns ErrUnsupported.
package xdp

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	ErrConfig      = errors.New("invalid configuration")
	ErrUnsupported = errors.New("XDP is not to be had")
	ErrPrivilege   = errors.New("the process lacks privileges")
)

// Mode is where the kernel runs an interface's program.
type Mode int

// Modes of attachment.
const (
	// Native runs the program in the driver, or fails where the driver cannot.
	Native Mode = iota
	// Generic runs it behind the driver, on packets that the kernel has already made. It works on every interface and is
	// for tests and for interfaces without support: what XDP saves has been spent there.
	Generic
	// Fallback is Native where the driver can, Generic elsewhere. Entry.Mode tells which it became.
	Fallback
)

// String returns the mode's name.
func (m Mode) String() string {
	switch m {
	case Native:
		return "native"
	case Generic:
		return "generic"
	case Fallback:
		return "fallback"
	}
	return fmt.Sprintf("Mode(%d)", int(m))
}

// Stage is a place in the order in which an interface's programs run.
type Stage uint32

// Stages, in their order.
const (
	Shield Stage = iota
	Balancer
	stages
)

// String returns the stage's name.
func (s Stage) String() string {
	switch s {
	case Shield:
		return "shield"
	case Balancer:
		return "balancer"
	}
	return fmt.Sprintf("Stage(%d)", uint32(s))
}

// Config says where an Entry is attached.
type Config struct {
	// Interface is the interface's index.
	Interface int
	// Mode is Native when zero.
	Mode Mode
	// PinPath is a directory on a BPF file system (mounted by mount -t bpf), in which the attachment and the stages
	// outlive the process. The next Attach with this path takes them over, without a moment in which no program runs.
	// Empty: they end with the Entry.
	PinPath string
}
