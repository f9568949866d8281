package frame_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/bench/internal/frame"
)

func TestRepliesAreTheFramesAtAnySplit(t *testing.T) {
	var stream []byte
	for _, n := range []int{0, 1, 5, 64} {
		stream = frame.Append(stream, bytes.Repeat([]byte{byte(n)}, n))
	}
	for at := range stream {
		out, taken, err := frame.AppendReplies([]byte{}, stream[:at])
		require.NoError(t, err)
		require.Equal(t, stream[:taken], out)
		rest, more, err := frame.AppendReplies(out, stream[taken:])
		require.NoError(t, err)
		require.Equal(t, len(stream), taken+more)
		require.Equal(t, stream, rest)
	}
}

func TestLengthLimit(t *testing.T) {
	for n, want := range map[uint32]error{
		frame.MaxPayloadBytes - 1: nil, frame.MaxPayloadBytes: nil, frame.MaxPayloadBytes + 1: frame.ErrTooLong,
	} {
		_, _, err := frame.Length(binary.BigEndian.AppendUint32(nil, n))
		assert.ErrorIs(t, err, want, "%d", n)
	}
}

func ExampleAppend() {
	fmt.Printf("%q\n", frame.Append(nil, []byte("hello")))
	// Output: "\x00\x00\x00\x05hello"
}
