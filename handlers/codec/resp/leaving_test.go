package resp

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// batches notes the reads, and where a batch of them ends.
type batches struct{ got []string }

func (b *batches) ChannelRead(_ *pipeline.Context, msg any) error {
	b.got = append(b.got, string(msg.(*buffer.Buf).Bytes()))
	return nil
}

func (b *batches) ChannelReadComplete(*pipeline.Context) error {
	b.got = append(b.got, "complete")
	return nil
}

// A handler that writes at the end of a batch would wait for ever: nothing else may come from the peer.
func TestADecoderThatLeavesBesideAReadEndsTheBatchOfWhatItHeld(t *testing.T) {
	lines, err := codec.NewLines(codec.LinesConfig{})
	require.NoError(t, err)
	commands, err := NewCommandDecoder(Config{})
	require.NoError(t, err)
	for _, tc := range []struct {
		name    string
		decoder any
		in      string
	}{
		{"a framer", lines, "half a line"},
		{"commands", commands, "*1\r\n$4\r\nPI"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &batches{}
			ch := pipelinetest.New(t, pipelinetest.Named("decoder", tc.decoder), b)
			ch.WriteInbound(tc.in)
			assert.Equal(t, []string{"complete"}, b.got)
			b.got = nil
			ch.Do(func() {
				_, err := ch.Pipeline().Remove("decoder")
				assert.NoError(t, err)
			})
			assert.Equal(t, []string{tc.in, "complete"}, b.got)
			ch.Finish()
		})
	}
}
