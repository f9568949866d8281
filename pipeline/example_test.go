package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// lines cuts what is received into lines.
type lines struct{ partial []byte }

func (l *lines) ChannelRead(ctx *pipeline.Context, msg any) error {
	for _, c := range msg.(*buffer.Buf).Bytes() {
		if c != '\n' {
			l.partial = append(l.partial, c)
			continue
		}
		line := string(l.partial)
		l.partial = l.partial[:0]
		ctx.FireRead(line)
	}
	return nil
}

// Write ends each line that is written.
func (*lines) Write(ctx *pipeline.Context, msg any) error {
	return ctx.WriteBytes([]byte(msg.(string)), []byte("\n"))
}

// greeter answers names.
type greeter struct{}

func (greeter) ChannelActive(ctx *pipeline.Context) error { return ctx.Write("Your name?") }

func (greeter) ChannelRead(ctx *pipeline.Context, msg any) error {
	if msg == "bye" {
		return ctx.Close()
	}
	return ctx.Write("Hello " + msg.(string) + "!")
}

func Example() {
	ch := pipelinetest.New(exampleTB{}, &lines{}, greeter{})
	ch.WriteInbound("Ada\nGr", "ace\n")
	ch.WriteInbound("bye\n")
	fmt.Print(ch.OutboundString())
	fmt.Println("closed:", ch.Closed(), ch.Cause())
	// Output:
	// Your name?
	// Hello Ada!
	// Hello Grace!
	// closed: true <nil>
}

// exampleTB stands in for the *testing.T that an example does not have.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()        {}
func (exampleTB) Cleanup(func()) {}
