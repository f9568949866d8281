package resp

import (
	"fmt"

	"github.com/weirnet/weir/pipeline"
)

// ValueEncoder is the handler that writes *Value and *Command messages as bytes; it passes other messages on as they
// are. It has no state: one may stand in any number of pipelines.
type ValueEncoder struct{}

var _ pipeline.WriteHandler = ValueEncoder{}

// Write borrows msg until return. ErrEncode when it cannot be encoded: nothing of it was written.
func (ValueEncoder) Write(ctx *pipeline.Context, msg any) error {
	switch msg.(type) {
	case *Value, *Command:
		if !ctx.Open() {
			return fmt.Errorf("%w: resp: write %T", pipeline.ErrClosed, msg)
		}
	}
	switch m := msg.(type) {
	case *Value:
		if err := AppendValue(ctx.Out(), m); err != nil {
			return err
		}
		return ctx.EndMessage()
	case *Command:
		AppendCommand(ctx.Out(), m.Args...)
		return ctx.EndMessage()
	}
	return ctx.Write(msg)
}
