package main

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
)

// chatter is the handler of one connection. It belongs to the connection's loop.
type chatter struct {
	room   *room
	nick   string
	lines  splitter
	missed int // lines left out because the peer reads too slowly
}

// missed counts a line that the room has left out for somebody slow, and pauses nobody else.
func missed(ctx *pipeline.Context) { ctx.Handler().(*chatter).missed++ }

func (c *chatter) ChannelActive(ctx *pipeline.Context) error {
	c.nick = c.room.guest()
	if err := c.room.members.Add(ctx); err != nil {
		return err
	}
	if err := c.tell(ctx, "welcome, you are "+c.nick+"; commands: /nick NAME, /quit"); err != nil {
		return err
	}
	return c.room.say("* %s has joined", c.nick)
}

func (c *chatter) ChannelRead(ctx *pipeline.Context, msg any) error {
	err := c.lines.feed(msg.(*buffer.Buf).Bytes(), func(line []byte) error {
		if !ctx.Open() { // after /quit
			return nil
		}
		return c.line(ctx, printable(line))
	})
	if err == errLineTooLong {
		_ = c.tell(ctx, err.Error())
		return ctx.Close()
	}
	return err
}

func (c *chatter) ChannelInactive(*pipeline.Context) error {
	c.room.leave(c.nick)
	return c.room.say("* %s has left", c.nick)
}

// ChannelWritabilityChanged tells somebody who was too slow, and has caught up, what is missing.
func (c *chatter) ChannelWritabilityChanged(ctx *pipeline.Context) error {
	if !ctx.Writable() || c.missed == 0 {
		return nil
	}
	n := c.missed
	c.missed = 0
	return c.tell(ctx, fmt.Sprintf("%d lines were left out: you read too slowly", n))
}

func (c *chatter) ChannelShutdown(ctx *pipeline.Context) error {
	_ = c.tell(ctx, "the server stops")
	return ctx.Close()
}

// line does what one line asks for.
func (c *chatter) line(ctx *pipeline.Context, line string) error {
	command, argument, _ := strings.Cut(line, " ")
	switch {
	case line == "":
		return nil
	case command == "/quit":
		return ctx.Close()
	case command == "/nick":
		was, nick := c.nick, strings.TrimSpace(argument)
		if err := c.room.rename(was, nick); err != nil {
			return c.tell(ctx, err.Error())
		}
		c.nick = nick
		return c.delivered(ctx, c.room.say("* %s is now %s", was, nick))
	case strings.HasPrefix(command, "/"):
		return c.tell(ctx, "there is no command "+command)
	}
	return c.delivered(ctx, c.room.say("<%s> %s", c.nick, line))
}

// delivered tells the sender when the room could not take a line: refusing it is better than keeping lines without
// bound.
func (c *chatter) delivered(ctx *pipeline.Context, err error) error {
	if err != nil {
		return c.tell(ctx, "not delivered to everybody: "+err.Error())
	}
	return nil
}

func (c *chatter) tell(ctx *pipeline.Context, text string) error {
	return ctx.WriteBytes([]byte("* "), []byte(text), []byte("\n"))
}
