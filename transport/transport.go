// Package transport is the contract between an event loop and a kernel: operations go in by Submit, completions come
// out of Wait. It is completion-shaped on every implementation; epoll makes the calls itself when a socket is ready.
package transport

import (
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/weirnet/weir/buffer"
)

// Transport carries the operations of one event loop. Every method belongs to the goroutine (and OS thread) that opened
// the transport, Wake and Load excepted. A transport on a real clock also has Clock() time.Duration: the time now, from
// the fixed point of Now, read anew; a loop bounds its turns by it.
type Transport interface {
	// Listen opens a listening socket, or adopts one (ListenConfig.Listener). It accepts nothing until an Accept is
	// submitted.
	Listen(cfg ListenConfig) (Handle, error)

	// Submit starts an operation. It never fails for lack of space and never waits for the peer; what goes wrong comes as
	// a completion. Where nobody else reads files for the transport (epoll), a SendFile waits for the disk, in Submit or
	// in Wait. Each Submit yields completions of which exactly the last has More == false.
	Submit(op Op)

	// SendNow is a Send with Op.NoWait without a completion, where its outcome is known at once: it borrows bufs
	// until return and returns how many of their readable bytes the kernel took, with ErrWouldBlock when that is
	// less than all. ErrNotNow: nothing was done, this transport only sends by Submit. It looks no further than a Send
	// would: ErrStale, ErrBusy, and the error of a broken connection, which is told once.
	SendNow(h Handle, bufs []*buffer.Buf) (n int, err error)

	// Wait appends completions to dst and returns it: first those that are already there, else those that arrive within
	// timeout (negative: without limit; zero: only look). It hands out a bounded batch, never more than
	// cap(dst)-len(dst) when that is above zero (256 otherwise); what is left comes with the next call, which then
	// makes no system call before handing it out. It may return without completions before the timeout: after Wake, or
	// on a signal. An error means that the transport is beyond use.
	Wait(dst []Completion, timeout time.Duration) ([]Completion, error)

	// Wake makes a Wait that runs now, or else the next one, return at once. Any goroutine; any number of wakes before
	// a Wait count as one. After Close it returns ErrClosed.
	Wake() error

	// Load returns how many completions wait to be handed out, and what that is measured by, as of the end of the last
	// Wait. Any goroutine, also after Close.
	Load() Load

	// Now is the time since some fixed point: monotonic, read at most once per Wait, virtual on sim.
	Now() time.Duration

	// Pool is the loop's pool; received data comes in Bufs of it.
	Pool() *buffer.Pool

	// LocalAddr returns the address a listener or a socket is bound to: *net.TCPAddr or *net.UnixAddr; nil for a stale
	// Handle.
	LocalAddr(h Handle) net.Addr

	// Acked returns a mark that changes whenever the peer has acknowledged more of what was sent on h, however long after
	// the kernel has taken it, and how many bytes (or at least whether any) it has not acknowledged yet. Only a change of
	// the mark says something. On a Unix socket, where nothing is acknowledged, what waits to be read stands for that.
	// System calls. ErrStale for a stale Handle.
	Acked(h Handle) (mark uint64, left int, err error)

	// Control runs fn with the descriptor behind h. ErrStale for a stale Handle, ErrNotSupported where there is none.
	Control(h Handle, fn func(fd uintptr) error) error

	// HandOver lets go of a connected socket on which nothing was submitted yet, for another transport of its kind, on
	// whichever thread, to take over; the Handle is stale from here on. What arrives meanwhile is received there.
	// ErrStale for a stale Handle, ErrNotSupported for a listener, ErrBusy while an operation is in progress.
	HandOver(h Handle) (Socket, error)

	// TakeOver makes a socket that was handed over one of this transport's. It takes ownership, also on error: then the
	// socket is closed with RST. ErrClosed after Close, ErrNotSupported for a Socket of another kind, else as Accept
	// fails (ENFILE, EMFILE).
	TakeOver(s Socket) (Handle, error)

	// Stats returns counters since the transport was opened.
	Stats() Stats

	// Close closes every socket and listener at once (what was not sent is lost) and frees the transport. Completions
	// that were not handed out are dropped with their buffers. Close the channels first for a tidy end. Afterwards Wait
	// and Listen return ErrClosed.
	Close() error
}

// Handle names a socket of one transport. It is opaque: a slot and a generation, so that a stale one is recognised.
// Zero names nothing.
type Handle uint64

// Socket is a connected socket between two transports. It belongs to one goroutine at a time, any one. Sockets of
// transports on io_uring and on epoll are of one kind.
// Both methods close it, once and not after TakeOver.
type Socket interface {
	// Close closes it with RST, when nobody takes it over.
	Close()
	// Dismiss sends as much of words as the kernel takes at once, throws away what has been received, so that closing
	// sends FIN and not RST (RFC 2525, 2.17), and closes. What the peer sends later is answered with RST; Linux hands
	// out what it has received before one.
	Dismiss(words []byte)
}

// Kind says what an operation does.
type Kind uint8

// The operations. "The peer" is the other end of Op.Handle's connection.
const (
	// KindNone is the zero Kind; submitting it panics.
	KindNone Kind = iota
	// Recv delivers what the peer sends, in order, each completion with N > 0 and a Buf of N bytes, until Op.Limit
	// bytes were delivered (last completion has More == false), the peer finished sending (io.EOF), the operation was
	// cancelled (ErrCanceled) or the connection broke (its error). The data received before the end always comes first.
	// A transport may overshoot Limit by less than one of its blocks; the channel counts that as debt. The end never
	// comes together with data; a Recv after io.EOF returns io.EOF again. Linux tells of a reset once: when a blocked
	// Send got ECONNRESET, the Recv may read io.EOF. At most one per Handle.
	Recv
	// Send sends the readable bytes of Op.Bufs in order. Its completions' N add up to all the bytes unless it fails;
	// there may be several (progress). It borrows the Bufs, and the slice, until the last completion: the caller must
	// not consume, append to or release them before. At most one Send or SendFile per Handle. With Op.NoWait it takes
	// what the kernel takes at once: its only completion, which the next Wait hands out, has the count, and
	// ErrWouldBlock when that is less than all. The caller then moves what is left out of lent blocks and submits it
	// again without NoWait. That all was taken need not end that Wait before something else does, for up to 5 ms: a
	// transport may learn of it only then. Who waits for the outcome gives that Wait a timeout of zero.
	Send
	// SendFile sends Op.File; completions as for Send. A file that ends early fails with io.ErrUnexpectedEOF.
	SendFile
	// Accept accepts connections of a listener: a completion with Handle and Addr for each, More == true, until it is
	// cancelled or fails (EMFILE, ENFILE, ENOBUFS, ENOMEM, …: submit it again after a while). With Op.Limit above zero it
	// ends by itself with that many connections, the last of which has More == false, and leaves the others in the
	// kernel's queue. What was accepted before a Cancel took effect is handed out before the last completion.
	Accept
	// Connect opens a connection to Op.Dial; its completion has the Handle.
	Connect
	// WatchClose completes once (N == 0, Err == nil) when the peer has finished sending or the connection broke; when a
	// Recv has delivered io.EOF before, only when the connection broke (RST, or both directions are closed). It is for
	// sockets without an armed Recv, consumes nothing and does not spin.
	WatchClose
	// CloseWrite sends FIN: shutdown(2) with SHUT_WR. Not while a Send is in progress.
	CloseWrite
	// Close ends all operations of the Handle (each gets its last completion, ErrCanceled unless it was faster), closes
	// the socket (with RST when Op.Reset), and completes after all of them. The Handle is stale from its Submit on for
	// new operations. Closing a listener frees its port.
	Close
	// Cancel ends the operation of Op.Handle whose Kind is Op.Target: Recv, Send, SendFile, Accept or WatchClose. A
	// Connect has no Handle yet: it is named by Op.ConnectToken, which no other Connect in progress may have. What is
	// cancelled gets its last completion, ErrCanceled unless it was faster. The Cancel's own completion may come before
	// or after that, and has ErrNotFound when there was nothing to cancel. Data that had already been received when a
	// Recv is cancelled is delivered before its last completion.
	Cancel
)

// Op is an operation, passed by value.
type Op struct {
	Token  Token         // what its completions carry
	Handle Handle        // what it acts on; unused by Connect and by a Cancel of one
	Bufs   []*buffer.Buf // Send
	File   *FileRange    // SendFile
	Dial   *DialConfig   // Connect
	Limit  int           // Recv: bytes, > 0; Accept: connections, zero for no limit
	Kind   Kind
	Target Kind // Cancel: the operation to end
	Reset  bool // Close: send RST instead of FIN, drop unsent data
	NoWait bool // Send: do not wait for room in the kernel
	// ConnectToken is the token of the Connect that a Cancel is to end.
	ConnectToken Token
	Addr         netip.AddrPort // for datagrams, not used by streams
}

// FileRange is a run of bytes of an open file. The file must stay open until the operation's last completion.
type FileRange struct {
	File   *os.File
	Offset int64
	Length int64
}

// Completion reports progress or the end of an operation.
type Completion struct {
	Token  Token
	Handle Handle      // Accept, Connect: the new socket
	Buf    *buffer.Buf // Recv: owned by whoever called Wait
	Err    error       // nil, io.EOF, a sentinel of this package or a syscall.Errno
	N      int         // bytes
	More   bool        // the operation goes on
	// Accept, Connect: the peer's address, also of one that has reset the connection meanwhile. Unix says that the peer is
	// a Unix socket, which has no Addr. Neither: it is not known who the peer is, and nobody may be trusted for it.
	Addr netip.AddrPort
	Unix bool
}

// Token names an operation: the slot and the generation of whoever gets the completion, and a small number of their
// own, usually the Kind. Transports only carry it, but slots from SlotReserved on are theirs.
type Token uint64

// SlotReserved is the first slot that is a transport's own.
const SlotReserved = 1<<32 - 16

// MakeToken packs a token; generation counts modulo 2^24.
func MakeToken(slot, generation uint32, tag uint8) Token {
	return Token(slot)<<32 | Token(generation&(1<<24-1))<<8 | Token(tag)
}

// Slot is the token's slot.
func (t Token) Slot() uint32 { return uint32(t >> 32) }

// Generation is the token's generation, below 2^24.
func (t Token) Generation() uint32 { return uint32(t) >> 8 }

// Tag is the small number of the operation.
func (t Token) Tag() uint8 { return uint8(t) }

// ListenConfig says what to listen on.
type ListenConfig struct {
	Network string // "tcp", "tcp4", "tcp6" or "unix"
	Address string // an IP literal (or empty host) and port, or a path; names are resolved before

	// Backlog is the length of the kernel's queue of connections that wait to be accepted. Zero means 4096; the kernel
	// caps it at net.core.somaxconn.
	Backlog int
	// ReusePort sets SO_REUSEPORT, so that each loop can have a listener of its own on one port.
	ReusePort bool
	// Shared says that other transports accept from the same socket. A transport then asks the kernel for one connection
	// at a time, so that none which others could take waits for a loop that is busy.
	Shared bool
	// Control runs between socket(2) and bind(2), as in net.ListenConfig.
	Control func(network, address string, c syscall.RawConn) error
	// Listener, when set, is adopted instead: its descriptor is duplicated, the original stays its owner's.
	Listener syscall.Conn
	// Socket applies to accepted connections.
	Socket SocketConfig
}

// DialConfig says where to connect to.
type DialConfig struct {
	Network string // as in ListenConfig
	Address string // an IP literal and port, or a path
	// LocalAddress is bound to before connecting when not empty.
	LocalAddress string
	// Control runs between socket(2) and connect(2), as in net.Dialer.
	Control func(network, address string, c syscall.RawConn) error
	Socket  SocketConfig
}

// SocketConfig holds options of connected TCP sockets. The zero value works.
type SocketConfig struct {
	// Delay leaves Nagle's algorithm on. By default TCP_NODELAY is set: the loop coalesces writes itself.
	Delay bool
	// KeepAlive as in net.Dialer and net.ListenConfig: unless Enable is set, probes are sent with Go's defaults, after 15
	// s, every 15 s, 9 of them. NoKeepAlive turns them off.
	KeepAlive   net.KeepAliveConfig
	NoKeepAlive bool
	// SendBufferBytes and ReceiveBufferBytes are SO_SNDBUF and SO_RCVBUF, also of an adopted listener; zero leaves the
	// kernel's auto-tuning on.
	SendBufferBytes    int
	ReceiveBufferBytes int
}

// Stats are counters since the transport was opened. A transport leaves at zero what it does not have.
type Stats struct {
	Waits       uint64 // calls of Wait that entered the kernel
	Wakes       uint64 // times Wait returned because of Wake
	Completions uint64 // handed out
	Received    uint64 // bytes
	Sent        uint64 // bytes
	FileSent    uint64 // bytes of Sent that sendfile(2) or splice(2) carried
	ShortSends  uint64 // sends that the kernel took only in part
	Stale       uint64 // kernel events dropped because their socket was gone
	Open        int    // sockets and listeners open now

	// Of the completions that wait to be handed out, see Load: those now, the most there ever were, and Load.Entries.
	Waiting, WaitingPeak, WaitingEntries int
	// How often the kernel had more completions than its queue holds, how many at most came late because of that, and how
	// many were lost, which ends the transport.
	Overflows, Overflowed, Dropped uint64
}
