// Package transporttest states what a transport.Transport must do, one sentence per claim, and tests it: every
// transport runs the same suite, and both ends of each connection are transports, so that it uses nothing but the
// contract.
package transporttest

import (
	"net"
	"runtime"
	"testing"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
)

// Factory tells the suite how to open transports of one kind. Its functions run on the goroutine of the test.
type Factory struct {
	// Name of the transport, for messages.
	Name string
	// Open returns n transports that reach each other. It is called once per claim, on a goroutine locked to its
	// thread; the suite closes them. A transport that falls back to another kind must fail the test here.
	Open func(tb testing.TB, n int) []transport.Transport
	// Listen returns the configuration of a claim's i-th listener: a fresh address. Nil means 127.0.0.1 and port 0.
	Listen func(i int) transport.ListenConfig
	// Features are what the transport has; claims about others are skipped.
	Features Features
	// BlockBytes is the most that one completion of a Recv can bring. Zero means 64 KiB.
	BlockBytes int
	// Check, when set, runs after each claim that held, before the transports are closed: for counters which prove that
	// the transport did what it is tested for.
	Check func(tb testing.TB, trs []transport.Transport)
}

// Features of a transport that not every one has.
type Features struct {
	Unix     bool // "unix" as a network
	IPv6     bool // ::1 can be used
	SendFile bool // the operation SendFile
	Control  bool // sockets have descriptors: Control, the Control hooks, ListenConfig.Listener
	Lends    bool // received Bufs are lent blocks, see buffer.Lender
	SendNow  bool // SendNow sends, and does not return ErrNotNow
	Late     bool // completions are held back at random, also of operations that end at once
	// VirtualTime says that Wait does not take real time, so that no other goroutine can act meanwhile.
	VirtualTime bool
}

// All returns the features of a transport on real sockets.
func All() Features {
	return Features{Unix: true, IPv6: true, SendFile: true, Control: true, Lends: true}
}

// claim is one sentence and its test.
type claim struct {
	name  string // the sentence
	needs func(Features) bool
	run   func(r *rig)
	ends  int // transports, two when zero
}

// Run tests every claim as a subtest of its own.
func Run(t *testing.T, f Factory) {
	t.Helper()
	for _, c := range claims() {
		t.Run(c.name, func(t *testing.T) {
			if c.needs != nil && !c.needs(f.Features) {
				t.Skipf("%s does not have it", f.Name)
			}
			prove(t, f, c)
		})
	}
}

// Claims returns the sentences that hold of a transport with these features, in the order in which Run tests them.
func Claims(features Features) []string {
	var names []string
	for _, c := range claims() {
		if c.needs == nil || c.needs(features) {
			names = append(names, c.name)
		}
	}
	return names
}

func claims() []claim {
	var all []claim
	for _, group := range [][]claim{
		waitClaims(), streamClaims(), recvClaims(), endClaims(), sendClaims(), sendNowClaims(), fileClaims(),
		acceptClaims(), handOverClaims(), loadClaims(), addressClaims(), socketClaims(), cancelClaims(), closeClaims(),
		churnClaims(),
	} {
		all = append(all, group...)
	}
	return all
}

// prove runs one claim on transports of its own and then checks what holds after every claim.
func prove(tb testing.TB, f Factory, c claim) {
	tb.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := c.ends
	if n == 0 {
		n = 2
	}
	warmUp()
	before := testenv.OpenDescriptors()
	tb.Cleanup(func() { // the last one
		if after := testenv.OpenDescriptors(); after > before && !tb.Failed() {
			tb.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
	r := newRig(tb, f, n)
	defer r.abandon()
	c.run(r)
	r.finish()
}

// warmUp makes Go's runtime open what it keeps for good.
func warmUp() {
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		l.Close()
	}
}

func needsUnix(f Features) bool     { return f.Unix }
func needsIPv6(f Features) bool     { return f.IPv6 }
func needsSendFile(f Features) bool { return f.SendFile }
func needsControl(f Features) bool  { return f.Control }
func needsLends(f Features) bool    { return f.Lends }
func needsPrompt(f Features) bool   { return !f.Late }
func needsThreads(f Features) bool  { return !f.VirtualTime }
