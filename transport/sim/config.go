package sim

import (
	"io"
	"time"

	"github.com/weirnet/weir/buffer"
)

// Config configures a World. The zero value is a network without faults: everything arrives, one latency later.
//
// Rates are probabilities from 0 to 1; each is tried where its comment says.
type Config struct {
	// Latency is how long a segment travels. Zero means 50 µs; negative, none.
	Latency time.Duration
	// Jitter is the most that a segment may take in addition. Segments of one direction never overtake each other.
	Jitter time.Duration
	// TurnTime is what each call of Wait takes, so that a loop which never sleeps sees time pass. Zero means 1 µs;
	// negative, none.
	TurnTime time.Duration
	// SendBufferBytes and ReceiveBufferBytes bound what a socket holds that was not sent, or not read. Zero means 64
	// KiB. transport.SocketConfig overrides them.
	SendBufferBytes    int
	ReceiveBufferBytes int
	// SegmentBytes is the most that travels in one piece. Zero means 16 KiB.
	SegmentBytes int
	// BlockBytes is the size of the blocks that a transport lends for received data: a power of two from 256 to 1 MiB.
	// Zero means 16 KiB.
	BlockBytes int
	// Blocks is how many of them a transport has. When all are lent, receives are parked until one comes back. Zero
	// means 64.
	Blocks int
	// Batch is the most completions that a Wait hands out. Zero means 256.
	Batch int
	// MaxOpen bounds the sockets and listeners of one transport; beyond it they fail with EMFILE. Zero means 1 << 20.
	MaxOpen int
	// ConnectTimeout is how long a Connect that gets no answer lasts before it fails with ETIMEDOUT. Zero means 127 s,
	// Linux's default (tcp(7), tcp_syn_retries).
	ConnectTimeout time.Duration
	// SendNow makes the transports send without an operation, as epoll does; otherwise SendNow returns ErrNotNow.
	SendNow bool
	// Scrub overwrites what was received into a block when it comes back, so that who looks at a borrowed Buf later sees
	// that.
	Scrub bool
	// Answer, when set, decides the outcome of each Connect instead of the network.
	Answer func(*Dialing)
	// Pool configures the pools of the transports.
	Pool buffer.PoolConfig
	// Trace, when set, gets one line for each event, with its virtual time.
	Trace io.Writer

	Faults Faults
}

// Faults are the rates at which things happen that a loop must cope with. The first group is what any kernel may do at
// any time; connections survive it.
type Faults struct {
	Split         float64 // per segment: it is cut at a random place
	ShortRead     float64 // per receive: less is taken than is there
	ShortWrite    float64 // per attempt to send: less is taken than there is room for
	QuietProgress float64 // per progress of a send: it is not reported by itself, but with what follows
	Overshoot     float64 // per receive: it goes past its limit by less than a block
	NoBlock       float64 // per receive: it is parked for a while as if all blocks were lent
	Late          float64 // per completion: it is held back for up to LateBy
	Reorder       float64 // per completion: it comes before those of other sockets that wait already
	LateCancel    float64 // per Cancel and Close: it takes effect up to LateBy later, and may find the operation ended
	EarlyReturn   float64 // per Wait that would sleep: it returns at once without completions
	ShortBatch    float64 // per Wait: it hands out fewer completions than it could
	// LateBy bounds the delays above. Zero means 1 ms.
	LateBy time.Duration

	// The second group breaks things.

	Reset             float64 // per segment: the connection breaks instead; both sides get ECONNRESET
	ErrorOnce         float64 // per broken connection: the blocked Send gets the error and Recv reads EOF, as on Linux
	AcceptError       float64 // per accepted connection: Accept fails first, with EMFILE, ENFILE, ENOBUFS or ENOMEM
	ConnectRefused    float64 // per Connect: ECONNREFUSED
	ConnectUnanswered float64 // per Connect: no answer, ETIMEDOUT after ConnectTimeout
	ListenError       float64 // per Listen: EMFILE
}

// Mild returns faults that every transport may show at any time. What works on a perfect network works with them.
func Mild() Faults {
	return Faults{
		Split: 0.3, ShortRead: 0.2, ShortWrite: 0.2, QuietProgress: 0.5, Overshoot: 0.3, NoBlock: 0.05,
		Late: 0.1, Reorder: 0.2, LateCancel: 0.3, EarlyReturn: 0.1, ShortBatch: 0.1,
	}
}

// Harsh returns Mild and faults that break connections, accepts and connects.
func Harsh() Faults {
	f := Mild()
	f.Reset, f.ErrorOnce = 0.002, 0.5
	f.AcceptError, f.ConnectRefused, f.ConnectUnanswered, f.ListenError = 0.05, 0.02, 0.01, 0.02
	return f
}

func (c Config) withDefaults() Config {
	zero := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	wait := func(v *time.Duration, def time.Duration) {
		if *v == 0 {
			*v = def
		}
		*v = max(*v, 0)
	}
	wait(&c.Latency, 50*time.Microsecond)
	wait(&c.TurnTime, time.Microsecond)
	wait(&c.ConnectTimeout, 127*time.Second)
	wait(&c.Faults.LateBy, time.Millisecond)
	zero(&c.SendBufferBytes, 64<<10)
	zero(&c.ReceiveBufferBytes, 64<<10)
	zero(&c.SegmentBytes, 16<<10)
	zero(&c.BlockBytes, 16<<10)
	zero(&c.Blocks, 64)
	zero(&c.Batch, 256)
	zero(&c.MaxOpen, 1<<20)
	return c
}
