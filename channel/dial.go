package channel

import (
	"fmt"

	"github.com/weirnet/weir/loop"
	"github.com/weirnet/weir/transport"
)

// dial is a connection attempt. It belongs to its loop.
type dial struct {
	loop     *loop.Loop
	cfg      *settings
	dc       *transport.DialConfig
	reg      loop.Registration
	done     func(*Channel, error)
	canceled bool
}

// Dial connects on the loop, whose goroutine it belongs to. done is called exactly once, on the loop and never from
// inside Dial: with the channel, before its Init, or with the error. cancel gives up; done then gets
// transport.ErrCanceled. cfg may be nil.
func Dial(l *loop.Loop, dc *transport.DialConfig, cfg *Config, done func(*Channel, error)) (cancel func()) {
	d := &dial{loop: l, dc: dc, done: done}
	if cfg == nil {
		cfg = &Config{}
	}
	settled, err := cfg.settle()
	if err == nil {
		d.cfg = settled
		d.reg, err = l.Register(d)
	}
	if err != nil {
		t := l.NewTimer(d, func() { d.tell(nil, err) })
		t.Reset(0)
		return func() {}
	}
	l.Submit(transport.Op{Kind: transport.Connect, Token: d.token(transport.Connect), Dial: dc})
	return d.cancel
}

func (d *dial) cancel() {
	if d.canceled || d.done == nil {
		return
	}
	d.canceled = true
	d.loop.Submit(transport.Op{
		Kind: transport.Cancel, Token: d.token(transport.Cancel),
		Target: transport.Connect, ConnectToken: d.token(transport.Connect),
	})
}

// Complete handles the connect's completion. It borrows cp until return.
func (d *dial) Complete(cp *transport.Completion) {
	if transport.Kind(cp.Token.Tag()) != transport.Connect {
		return
	}
	d.loop.Unregister(d.reg)
	if cp.Err == nil && d.canceled { // it was faster than the cancel
		refuse(d.loop, cp.Handle)
		d.tell(nil, fmt.Errorf("channel: dial %s %s: %w", d.dc.Network, d.dc.Address, transport.ErrCanceled))
		return
	}
	if cp.Err != nil {
		d.tell(nil, fmt.Errorf("channel: dial %s %s: %w", d.dc.Network, d.dc.Address, cp.Err))
		return
	}
	c, err := newChannel(d.loop, cp, d.cfg)
	if err != nil {
		refuse(d.loop, cp.Handle)
		d.tell(nil, err)
		return
	}
	c.start()
	d.tell(c, nil)
}

func (d *dial) tell(c *Channel, err error) {
	if done := d.done; done != nil {
		d.done = nil
		done(c, err)
	}
}

func (d *dial) token(k transport.Kind) transport.Token { return d.reg.Token(uint8(k)) }

// RunNode is not used by dials.
func (d *dial) RunNode(*loop.Node) {}

// EndTurn is not used by dials.
func (d *dial) EndTurn() {}

// Panicked logs a panic of done.
func (d *dial) Panicked(v any, stack []byte) {
	d.loop.Logger().Error("weir: dial callback panicked", "panic", v, "address", d.dc.Address, "stack", string(stack))
}

// Abort gives up because the loop goes away. The second call is the loop's last: no completion will come.
func (d *dial) Abort(cause error) {
	if !d.canceled {
		d.cancel()
		return
	}
	d.tell(nil, fmt.Errorf("channel: dial %s %s: %w", d.dc.Network, d.dc.Address, cause))
}
