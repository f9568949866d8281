package weir

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/transport"
)

var errNoRing = errors.New("no ring today")

// failing is a transport that cannot be opened.
func failing(kind Kind) opener {
	return opener{kind: kind, open: func(bool, func(string)) (transport.Transport, error) { return nil, errNoRing }}
}

// lockedBuffer is a log that several loops write to.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func epollOpener(t *testing.T) opener {
	for _, o := range transports() {
		if o.kind == Epoll {
			return o
		}
	}
	t.Skip("no epoll on this system")
	return opener{}
}

func TestAutoFallsBackWithOneLineOfTheReason(t *testing.T) {
	var text lockedBuffer
	e, err := startEngine(engineConfig{
		loops: 4, openers: []opener{failing(Uring), epollOpener(t)}, logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	require.NoError(t, err)
	e.stop()
	e.join()
	require.NoError(t, e.err)
	for i, a := range e.workers {
		assert.Equal(t, Epoll, a.kind, "loop %d", i)
	}
	assert.Equal(t, 1, strings.Count(text.String(), "falls back"), "%s", text.String())
	assert.Contains(t, text.String(), errNoRing.Error())
}

func TestAutoTakesTheFirstThatOpensAndSaysNothing(t *testing.T) {
	var text lockedBuffer
	e, err := startEngine(engineConfig{
		loops: 1, openers: []opener{epollOpener(t), failing(Uring)}, logger: slog.New(slog.NewTextHandler(&text, nil)),
	})
	require.NoError(t, err)
	e.stop()
	e.join()
	assert.NotContains(t, text.String(), "falls back")
}

func TestAChosenTransportNeverFallsBack(t *testing.T) {
	for _, tc := range []struct {
		name    string
		openers []opener
		want    error
	}{
		{"cannot be opened", []opener{failing(Uring), epollOpener(t)}, errNoRing},
		{"not on this system", []opener{epollOpener(t)}, transport.ErrNotSupported},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := startEngine(engineConfig{
				loops: 2, kind: Uring, openers: tc.openers, logger: slog.New(slog.DiscardHandler),
			})
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, "uring")
		})
	}
}

func TestLoopsHaveAnUpperBound(t *testing.T) {
	for loops, want := range map[int]error{MaxLoops - 1: errNoRing, MaxLoops: errNoRing, MaxLoops + 1: ErrConfig} {
		_, err := startEngine(engineConfig{
			loops: loops, openers: []opener{failing(Epoll)}, logger: slog.New(slog.DiscardHandler),
		})
		require.ErrorIs(t, err, want, "%d loops", loops)
	}
}

func TestTheEnvironmentOverridesAuto(t *testing.T) {
	for _, tc := range []struct {
		env   string
		named Kind
		want  Kind
		says  string
	}{
		{env: "", want: Uring},
		{env: "auto", want: Uring},
		{env: "epoll", want: Epoll},
		{env: "epoll", named: Auto, want: Epoll},
		{env: "epoll", named: Uring, want: Uring},
		{env: "kqueue", named: Epoll, want: Epoll},
		{env: "kqueue", says: `WEIR_TRANSPORT "kqueue" is not "auto", "uring" or "epoll"`},
		{env: "Epoll", named: Auto, says: `WEIR_TRANSPORT "Epoll"`},
	} {
		t.Run(tc.env+"/"+string(tc.named), func(t *testing.T) {
			t.Setenv(TransportEnv, tc.env)
			e, err := startEngine(engineConfig{
				loops: 1, kind: tc.named, logger: slog.New(slog.DiscardHandler),
				openers: []opener{{kind: Uring, open: epollOpener(t).open}, epollOpener(t)},
			})
			if tc.says != "" {
				require.ErrorIs(t, err, ErrConfig)
				require.ErrorContains(t, err, tc.says)
				return
			}
			require.NoError(t, err)
			e.stop()
			e.join()
			assert.Equal(t, tc.want, e.workers[0].kind)
		})
	}
	t.Run("is not replaced where it cannot be opened", func(t *testing.T) {
		t.Setenv(TransportEnv, "uring")
		_, err := startEngine(engineConfig{
			loops: 1, openers: []opener{failing(Uring), epollOpener(t)}, logger: slog.New(slog.DiscardHandler),
		})
		require.ErrorIs(t, err, errNoRing)
	})
}

func TestAutoFailsWithEveryReasonWhenNothingOpens(t *testing.T) {
	_, err := startEngine(engineConfig{
		loops: 2, openers: []opener{failing(Uring), failing(Epoll)}, logger: slog.New(slog.DiscardHandler),
	})
	require.ErrorIs(t, err, errNoRing)
	require.ErrorContains(t, err, "uring: no ring today")
	require.ErrorContains(t, err, "epoll: no ring today")
	_, err = startEngine(engineConfig{loops: 1})
	require.ErrorIs(t, err, transport.ErrNotSupported, "a system without transports")
}

func TestAddressFamiliesTakeTurns(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"none", "", ""},
		{"one family", "1.1.1.1 1.1.1.2", "1.1.1.1 1.1.1.2"},
		{"the first choice begins", "::1 ::2 1.1.1.1 ::3 1.1.1.2", "::1 1.1.1.1 ::2 1.1.1.2 ::3"},
		{"four first", "1.1.1.1 ::1 ::2", "1.1.1.1 ::1 ::2"},
		{"mapped addresses are of IPv4", "::ffff:1.1.1.1 ::1 1.1.1.2", "1.1.1.1 ::1 1.1.1.2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var ips []netip.Addr
			for s := range strings.FieldsSeq(tc.in) {
				ips = append(ips, netip.MustParseAddr(s))
			}
			var got []string
			for _, ip := range alternate(ips) {
				got = append(got, ip.String())
			}
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}
