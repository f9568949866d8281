// Package pipelinetest is a channel whose peer, kernel and clock a test plays, to test handlers without a socket.
//
//	ch := pipelinetest.New(t, &lengthDecoder{}, &app{})
//	ch.WriteInbound("\x00\x05hello")             // as if the peer had sent it
//	assert.Equal(t, "hello!", ch.OutboundString()) // what the kernel was given
//
// The channel is one of package channel on a loop of package loop; only the network is simulated (package sim). So
// everything behaves as it does in a program: writes queue and are sent at the end of the turn, pausing holds input
// back, a resume runs from a loop task, Close sends what is queued, and Pending counts memory: a byte that is queued
// holds a block.
//
// The test plays the peer (WriteInbound, PeerClose, PeerReset), the kernel (Stall, Drain) and the clock (Advance).
// After each such call the loop turns until nothing is left to do; with Config.Manual it does so only in RunTasks and
// Advance. A peer returns FIN with FIN at once unless Config.SilentPeer is set.
//
// At the end of the test, Finish closes the channels and checks that every Buf was released, that no handler panicked
// and that no error reached the end of the pipeline unexpected (TakeError expects it).
package pipelinetest
