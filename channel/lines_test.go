package channel_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/channel"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
)

// A peer that connects again and again, to handlers that fail each time, does not fill the log.
func TestFailuresOfHandlersAreLoggedWithinALimit(t *testing.T) {
	const atOnce = 100
	for name, fail := range map[string]func(*pipeline.Pipeline) error{
		"init failed":      func(*pipeline.Pipeline) error { return errTest },
		"handler panicked": func(*pipeline.Pipeline) error { panic("in Init") },
	} {
		for _, n := range []int{atOnce - 1, atOnce, atOnce + 20} {
			p := newPair(t, sim.Config{})
			var log bytes.Buffer
			cfg := channel.Config{Init: fail, Logger: slog.New(slog.NewTextHandler(&log, nil))}
			_, err := channel.Listen(p.server, channel.ListenerConfig{
				Transport: transport.ListenConfig{Network: "tcp", Address: address}, Channel: &cfg,
			})
			require.NoError(t, err)
			lines := func() int { return strings.Count(log.String(), name) }
			gone := func(n int) {
				clients := make([]*probe, n)
				for i := range clients {
					clients[i] = &probe{}
					p.dial(clients[i])
				}
				for _, h := range clients {
					p.until("it is closed", func() bool { return h.inactive == 1 })
				}
			}
			gone(n)
			require.Less(t, p.server.Now(), 100*time.Millisecond, "no time for another line")
			assert.Equal(t, min(n, atOnce), lines())
			assert.NotContains(t, log.String(), "omitted")
			p.run(time.Second)
			gone(1)
			assert.Equal(t, min(n, atOnce)+1, lines())
			assert.Equal(t, n > atOnce, strings.Contains(log.String(), "omitted=20"))
		}
	}
}
