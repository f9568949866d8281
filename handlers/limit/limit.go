// Package limit applies a flow.Limiter to the requests of pipelines: on a server's side to those that come in, on a
// client's side to those that are written. It matches responses to requests in order or by an id, tells the limiter how
// long each took, and refuses, as busy, what is above the limit. Put it behind the decoder and encoder.
package limit

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/pipeline"
)

var (
	// ErrConfig is what constructors return for a configuration that makes no sense; wrapped with the values.
	ErrConfig = errors.New("limit: bad configuration")
	// ErrUnmatched is the error of a response without a request, where they come in order.
	ErrUnmatched = errors.New("limit: response without a request")
)

// DefaultMaxOutstanding is how many requests of a channel may have no response yet.
const DefaultMaxOutstanding = 1024

// Config configures a Group.
type Config struct {
	// Limiter says how many requests of all channels of the group may be under way.
	Limiter flow.Limiter
	// Request returns the id of a message that is a request, or false for other messages, which pass. With nil every
	// message is a request.
	Request func(msg any) (id uint64, ok bool)
	// Response is the same for responses.
	Response func(msg any) (id uint64, ok bool)
	// ByID matches responses by id; otherwise they come in the order of their requests, and ids are not looked at.
	ByID bool
	// Refuse writes the busy answer to a request that is refused on a server's side, with ctx.Write. It is called in
	// the order of the requests where these are matched in order. It has to be set for servers; a client's Write
	// returns the *flow.Busy.
	Refuse func(ctx *pipeline.Context, id uint64, busy *flow.Busy) error
	// Timeout is after what time a request counts as lost for the limiter, and no longer as under way. Its response, if
	// one comes, passes. Zero means 5 s.
	Timeout time.Duration
	// RetryAfter is the hint of busy answers. Zero means 50 ms.
	RetryAfter time.Duration
	// MaxOutstanding is how many requests of a channel may have no response yet, refusals that wait for their turn and,
	// where they are in order, those that timed out included. One more is an error that wraps pipeline.ErrFull, which
	// closes a server's channel and is what a client's Write returns. Zero means 1024; at most flow.MaxLimit.
	MaxOutstanding int
}

// Group is a limiter that channels of one loop share, and what they have under way. It belongs to that loop.
type Group struct {
	cfg      Config
	inFlight int
	refused  uint64
}

// NewGroup returns a group with nothing under way. The error wraps ErrConfig.
func NewGroup(cfg Config) (*Group, error) {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.RetryAfter == 0 {
		cfg.RetryAfter = 50 * time.Millisecond
	}
	if cfg.MaxOutstanding == 0 {
		cfg.MaxOutstanding = DefaultMaxOutstanding
	}
	if cfg.Limiter == nil || cfg.Timeout < 0 || cfg.RetryAfter < 0 || cfg.MaxOutstanding < 1 ||
		cfg.MaxOutstanding > flow.MaxLimit || cfg.ByID && (cfg.Request == nil || cfg.Response == nil) {
		return nil, fmt.Errorf("%w: limiter %v, timeout %v, retry after %v, %d outstanding of at most %d, or ids without "+
			"functions that tell them", ErrConfig, cfg.Limiter, cfg.Timeout, cfg.RetryAfter, cfg.MaxOutstanding, flow.MaxLimit)
	}
	all := func(any) (uint64, bool) { return 0, true }
	if cfg.Request == nil {
		cfg.Request = all
	}
	if cfg.Response == nil {
		cfg.Response = all
	}
	return &Group{cfg: cfg}, nil
}

// InFlight is how many are under way.
func (g *Group) InFlight() int { return g.inFlight }

// Refused is how many were refused.
func (g *Group) Refused() uint64 { return g.refused }

// Server returns a handler for one channel whose peer sends requests. The error wraps ErrConfig.
func (g *Group) Server() (*Server, error) {
	if g.cfg.Refuse == nil {
		return nil, fmt.Errorf("%w: a server without Refuse", ErrConfig)
	}
	return &Server{side: side{group: g}}, nil
}

// Client returns a handler for one channel that sends requests.
func (g *Group) Client() *Client { return &Client{side: side{group: g}} }

// call is a request without a response yet.
type call struct {
	id      uint64
	began   time.Duration
	lost    bool       // timed out: no longer under way
	refused *flow.Busy // its answer is due when those before it have had theirs
}

// side is what both sides of a connection do. It belongs to its channel's loop.
type side struct {
	group *Group
	calls []call // in the order of their requests
	live  int    // of them under way
	timer pipeline.Timer
}

// HandlerRemoved gives back what is under way, of which the limiter learns nothing.
func (s *side) HandlerRemoved(*pipeline.Context) error {
	s.group.inFlight -= s.live
	s.calls, s.live = nil, 0
	if s.timer != nil {
		s.timer.Stop()
	}
	return nil
}

// begin notes a request, or returns why it may not go on.
func (s *side) begin(ctx *pipeline.Context, id uint64) (*flow.Busy, error) {
	g := s.group
	if len(s.calls) >= g.cfg.MaxOutstanding {
		return nil, fmt.Errorf("limit: %d requests outstanding, at most %d: %w", len(s.calls)+1, g.cfg.MaxOutstanding,
			pipeline.ErrFull)
	}
	if g.inFlight >= g.cfg.Limiter.Limit() {
		g.refused++
		return &flow.Busy{RetryAfter: g.cfg.RetryAfter, Shed: true}, nil
	}
	g.inFlight++
	s.calls = append(s.calls, call{id: id, began: ctx.Now()})
	if s.live++; s.live == 1 {
		s.arm(ctx)
	}
	return nil, nil
}

// end matches a response.
func (s *side) end(ctx *pipeline.Context, id uint64) error {
	for i, c := range s.calls {
		if s.group.cfg.ByID && c.id != id {
			continue
		}
		s.calls = append(s.calls[:i], s.calls[i+1:]...)
		if !c.lost {
			s.done(ctx, c, false)
		}
		return nil
	}
	if s.group.cfg.ByID {
		return nil // it may have timed out
	}
	return fmt.Errorf("%w: id %d, %d outstanding", ErrUnmatched, id, len(s.calls))
}

func (s *side) done(ctx *pipeline.Context, c call, lost bool) {
	g := s.group
	g.cfg.Limiter.Done(ctx.Now(), ctx.Now()-c.began, g.inFlight, lost)
	g.inFlight--
	s.live--
}

// arm sets the timer for the oldest that has not timed out.
func (s *side) arm(ctx *pipeline.Context) {
	for _, c := range s.calls {
		if c.lost || c.refused != nil {
			continue
		}
		if s.timer == nil {
			s.timer = ctx.NewTimer(s.expire)
		}
		s.timer.Reset(max(c.began+s.group.cfg.Timeout-ctx.Now(), 1))
		return
	}
}

func (s *side) expire(ctx *pipeline.Context) error {
	for i := range s.calls {
		c := &s.calls[i]
		if !c.lost && c.refused == nil && ctx.Now()-c.began >= s.group.cfg.Timeout {
			c.lost = true
			s.done(ctx, *c, true)
		}
	}
	if s.group.cfg.ByID {
		s.calls = slices.DeleteFunc(s.calls, func(c call) bool { return c.lost })
	}
	s.arm(ctx)
	return nil
}

// Server limits requests that come in. It belongs to its channel's loop and stands in one pipeline.
type Server struct{ side }

// Client limits requests that are written. It belongs to its channel's loop and stands in one pipeline.
type Client struct{ side }

var (
	_ pipeline.ReadHandler    = (*Server)(nil)
	_ pipeline.WriteHandler   = (*Server)(nil)
	_ pipeline.RemovedHandler = (*Server)(nil)
	_ pipeline.ReadHandler    = (*Client)(nil)
	_ pipeline.WriteHandler   = (*Client)(nil)
	_ pipeline.RemovedHandler = (*Client)(nil)
)

// ChannelRead passes a request on or refuses it.
func (s *Server) ChannelRead(ctx *pipeline.Context, msg any) error {
	id, ok := s.group.cfg.Request(msg)
	if !ok {
		ctx.FireRead(msg)
		return nil
	}
	busy, err := s.begin(ctx, id)
	if err != nil {
		return err
	}
	if busy == nil {
		ctx.FireRead(msg)
		return nil
	}
	if s.group.cfg.ByID || len(s.calls) == 0 {
		return s.group.cfg.Refuse(ctx, id, busy)
	}
	s.calls = append(s.calls, call{id: id, refused: busy})
	return nil
}

// Write passes a response on, and after it the refusals that waited for it.
func (s *Server) Write(ctx *pipeline.Context, msg any) error {
	id, ok := s.group.cfg.Response(msg)
	if !ok {
		return ctx.Write(msg)
	}
	if err := s.end(ctx, id); err != nil {
		return err
	}
	err := ctx.Write(msg)
	for len(s.calls) > 0 && s.calls[0].refused != nil {
		c := s.calls[0]
		s.calls = append(s.calls[:0], s.calls[1:]...)
		err = errors.Join(err, s.group.cfg.Refuse(ctx, c.id, c.refused))
	}
	return err
}

// Write passes a request on, or returns a *flow.Busy as its error.
func (c *Client) Write(ctx *pipeline.Context, msg any) error {
	id, ok := c.group.cfg.Request(msg)
	if !ok {
		return ctx.Write(msg)
	}
	busy, err := c.begin(ctx, id)
	if err != nil {
		return err
	}
	if busy != nil {
		return busy
	}
	if err := ctx.Write(msg); err != nil {
		last := len(c.calls) - 1
		c.calls = c.calls[:last]
		c.group.inFlight--
		c.live--
		return err
	}
	return nil
}

// ChannelRead passes a response on.
func (c *Client) ChannelRead(ctx *pipeline.Context, msg any) error {
	if id, ok := c.group.cfg.Response(msg); ok {
		if err := c.end(ctx, id); err != nil {
			return err
		}
	}
	ctx.FireRead(msg)
	return nil
}
