package resp

import "github.com/weirnet/weir/pipeline"

// CommandBatchDecoder is CommandDecoder for servers whose clients send many requests at once: it hands on a
// *CommandBatch, the same one every time, which is valid until the next handler returns. What a handler need not do for
// each request it does once. It belongs to its channel's loop and stands in one pipeline.
type CommandBatchDecoder struct {
	decoder[*Command]
	batch CommandBatch
}

// NewCommandBatchDecoder returns a handler with the limits of cfg.
func NewCommandBatchDecoder(cfg Config) (*CommandBatchDecoder, error) {
	p, err := NewCommandParser(cfg)
	if err != nil {
		return nil, err
	}
	d := &CommandBatchDecoder{decoder: decoder[*Command]{parser: p, maxHeld: p.cfg.MaxMessageBytes}}
	d.batch.decoder, d.batch.parser = &d.decoder, p
	d.decoder.batch = &d.batch
	return d, nil
}

var (
	_ pipeline.ReadHandler    = (*CommandBatchDecoder)(nil)
	_ pipeline.ResumeHandler  = (*CommandBatchDecoder)(nil)
	_ pipeline.RemovedHandler = (*CommandBatchDecoder)(nil)
)

// CommandBatch is what has been received of requests, one or more. It belongs to its decoder's loop.
type CommandBatch struct {
	decoder *decoder[*Command]
	parser  *CommandParser
	first   *Command // has been decoded and not been asked for
}

// Next takes the next request; nil: there is none that is complete. The request is valid until the next call, and until
// ChannelRead returns. Next looks neither at pausing nor at closing: who pauses or closes stops asking. What was not
// asked for is held back while reading is paused, else handed on in another batch.
func (b *CommandBatch) Next() *Command {
	if c := b.first; c != nil {
		b.first = nil
		return c
	}
	d := b.decoder
	if d.inRest || d.failed { // what lies across two blocks is a batch of its own
		return nil
	}
	for d.cur != nil && d.off < d.cur.Len() {
		c, n, err := b.parser.Decode(d.cur.Bytes()[d.off:])
		if err != nil {
			return nil // the decoder will find the same
		}
		d.off += n
		if len(c.Args) > 0 {
			return c
		}
	}
	return nil
}

// begin makes b begin with a request.
func (b *CommandBatch) begin(first *Command) any {
	b.first = first
	return b
}

func (b *CommandBatch) end() { b.first = nil }
