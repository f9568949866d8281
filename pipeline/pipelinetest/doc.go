// Package pipelinetest is an embedded channel with a fake clock, to test handlers without a socket.
//
//	ch := pipelinetest.New(t, &lengthDecoder{}, &app{})
//	ch.WriteInbound("\x00\x05hello")             // as if the peer had sent it
//	assert.Equal(t, "hello!", ch.OutboundString()) // what the kernel was given
//
// A Channel behaves like one of package channel: writes queue and are sent at the end of the turn, pausing holds input
// back, a resume runs from a loop task, Close sends what is queued, everything answers ErrClosed afterwards. The test plays
// the peer (WriteInbound, PeerClose, PeerReset), the kernel (Stall, Drain) and the clock (Advance). After each such call
// the loop turns until nothing is left to do; with Config.Manual it does so only in RunTasks.
//
// At the end of the test, Finish checks that every Buf was released, that no error reached the end of the pipeline
// unexpected (TakeError expects it), and closes the channel, so that every callback fires.
//
// It differs from package channel where that makes tests easier to read: Pending counts payload bytes instead of the
// memory that holds them, and a peer answers FIN with FIN at once unless Config.SilentPeer is set.
package pipelinetest
