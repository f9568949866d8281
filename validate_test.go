package weir_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir"
	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
)

// What is wrong with a configuration is said of the setting that is wrong, and of no other.
func TestANegativeSettingIsNamedAlone(t *testing.T) {
	for want, s := range map[string]*weir.Server{
		"Loops -1":                {Loops: -1},
		"Backlog -1":              {Backlog: -1},
		"MaxTasks -1":             {MaxTasks: -1},
		"MaxPendingBytes -1":      {MaxPendingBytes: -1},
		"MaxConnections -1":       {MaxConnections: -1},
		"AcceptBackoff -1ns":      {AcceptBackoff: -1},
		"MaxPendingBytes -2":      {Channel: channel.Config{MaxPendingBytes: -2}},
		"MaxPendingRegions -1":    {Channel: channel.Config{MaxPendingRegions: -1}},
		"CloseDiscardBytes -1":    {Channel: channel.Config{CloseDiscardBytes: -1}},
		"MaxPostedTasks -1":       {Channel: channel.Config{MaxPostedTasks: -1}},
		"CloseTimeout -1ns":       {Channel: channel.Config{CloseTimeout: -1}},
		"PausedCloseTimeout -1ns": {Channel: channel.Config{PausedCloseTimeout: -1}},
	} {
		s.Init = func(*pipeline.Pipeline) error { return nil }
		_, err := s.Listen("tcp", "127.0.0.1:0")
		assert.ErrorIs(t, err, weir.ErrConfig)
		assert.Regexp(t, "negative[a-z ]*: "+want+"$", err)
	}
	_, err := (&weir.Dialer{Loops: -1}).Dial(context.Background(), "tcp", "127.0.0.1:1", nil)
	assert.Regexp(t, "negative: Loops -1$", err)
	_, err = (&weir.Dialer{Timeout: -1}).Dial(context.Background(), "tcp", "127.0.0.1:1", nil)
	assert.Regexp(t, "negative: Timeout -1ns$", err)
}
