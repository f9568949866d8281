package logging_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/handlers/logging"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// flushDeviations are the cases of Netty's FlushConsolidationHandler, which weir has no counterpart of.
var flushDeviations = map[string]string{
	"netty-254": "the end of each turn flushes what was written in it, once: there are no flushes per message to join",
	"netty-256": "for the same reason an error has nothing to let go that was held back",
}

func TestThereIsOneFlushPerTurnWithoutAHandlerForIt(t *testing.T) {
	for _, id := range []string{"netty-254", "netty-256"} {
		assert.NotEmpty(t, flushDeviations[id], id)
	}
	log, lines := recorder(slog.LevelInfo)
	ch := pipelinetest.New(t, handler(t, logging.Config{Logger: log}), echo{})
	ch.WriteInbound("a", "b", "c", "d")
	text := strings.Join(lines(), "\n")
	assert.Equal(t, 4, strings.Count(text, "msg=write"), text)
	assert.Equal(t, 1, strings.Count(text, "msg=flush"), text)
	assert.Equal(t, "abcd", ch.OutboundString())
}
