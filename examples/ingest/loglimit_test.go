package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALogHasSoManyLinesOfAKind(t *testing.T) {
	var out strings.Builder
	logger := limitLog(slog.New(slog.NewTextHandler(&out, nil)))
	began := time.Unix(1000, 0)
	say := func(logger *slog.Logger, at time.Duration, message string) {
		require.NoError(t, logger.Handler().Handle(context.Background(),
			slog.NewRecord(began.Add(at), slog.LevelWarn, message, 0)))
	}
	for range logLines + 5 {
		say(logger, 0, "one")
	}
	say(logger, 0, "other")
	say(logger.With("a", 1).WithGroup("b"), logEvery-1, "one")
	assert.Equal(t, logLines, strings.Count(out.String(), "msg=one"))
	assert.Equal(t, 1, strings.Count(out.String(), "msg=other"))
	say(logger, logEvery, "one")
	assert.Contains(t, out.String(), `msg=one "left out before"=6`)
	out.Reset()
	say(logger, 2*logEvery, "one")
	assert.NotContains(t, out.String(), "left out")
	limit := logger.Handler().(*logLimit)
	for i := range 3 * logKinds {
		say(logger, 0, fmt.Sprint(i))
	}
	assert.LessOrEqual(t, len(limit.state.kinds), logKinds)
}
