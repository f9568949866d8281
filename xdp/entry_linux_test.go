package xdp

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/netlab"
	"github.com/weirnet/weir/internal/testenv"
)

// lab is an interface in a namespace of its own.
func lab(t *testing.T) (s *netlab.Space, index int) {
	t.Helper()
	testenv.Require(t, "xdp", Check())
	s, err := netlab.NewSpace("lab")
	testenv.Require(t, "netns", err)
	t.Cleanup(s.Close)
	require.NoError(t, netlab.Join(s, "a", s, "b"))
	link, err := s.Link("a")
	require.NoError(t, err)
	return s, link.Attrs().Index
}

func attach(t *testing.T, s *netlab.Space, cfg Config) *Entry {
	t.Helper()
	var e *Entry
	require.NoError(t, s.Do(func() (err error) { e, err = Attach(cfg); return err }))
	return e
}

// verdict is a stage that returns a number.
func verdict(t *testing.T, number int32) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, AttachType: ebpf.AttachXDP, Flags: unix.BPF_F_XDP_HAS_FRAGS, License: "Apache-2.0",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, number), asm.Return()},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	return p
}

func run(t *testing.T, e *Entry) uint32 {
	t.Helper()
	got, _, err := e.Program().Test(make([]byte, 64))
	require.NoError(t, err)
	return got
}

func TestStagesRunInTheirOrder(t *testing.T) {
	s, index := lab(t)
	e := attach(t, s, Config{Interface: index})
	defer func() { assert.NoError(t, e.Close()) }()
	const pass, drop, tx = 2, 1, 3
	assert.EqualValues(t, pass, run(t, e), "no stage")
	require.NoError(t, e.Set(Balancer, verdict(t, tx)))
	assert.EqualValues(t, tx, run(t, e), "the second alone")
	require.NoError(t, e.Set(Shield, verdict(t, drop)))
	assert.EqualValues(t, drop, run(t, e), "the first is before the second")
	require.NoError(t, e.Clear(Shield))
	require.NoError(t, e.Clear(Shield), "twice")
	assert.EqualValues(t, tx, run(t, e))

	assert.ErrorIs(t, e.Set(stages, verdict(t, tx)), ErrConfig)
	assert.ErrorIs(t, e.Set(Shield, nil), ErrConfig)
}

func TestAnInterfaceHasOneEntry(t *testing.T) {
	s, index := lab(t)
	again := func(mode Mode) error {
		return s.Do(func() error { _, err := Attach(Config{Interface: index, Mode: mode}); return err })
	}
	for _, mode := range []Mode{Native, Generic, Fallback} {
		e := attach(t, s, Config{Interface: index, Mode: mode})
		assert.Equal(t, map[Mode]Mode{Native: Native, Generic: Generic, Fallback: Native}[mode], e.Mode())
		assert.ErrorContains(t, again(mode), "in mode "+mode.String())
		if mode != Generic {
			assert.ErrorIs(t, again(Native), unix.EBUSY)
			assert.ErrorIs(t, again(Generic), unix.EEXIST)
			assert.ErrorIs(t, again(Fallback), unix.EBUSY, "a second program in another mode")
		}
		require.NoError(t, e.Close())
	}
	for _, cfg := range []Config{{}, {Interface: -1}, {Interface: index, Mode: Fallback + 1}, {Interface: index, Mode: -1}} {
		_, err := Attach(cfg)
		assert.ErrorIs(t, err, ErrConfig, "%+v", cfg)
	}
}

func TestFallbackIsGenericWhereTheDriverCannot(t *testing.T) {
	s, _ := lab(t)
	require.NoError(t, s.Bridge("br0")) // a bridge's driver has no XDP
	link, err := s.Link("br0")
	require.NoError(t, err)
	index := link.Attrs().Index
	assert.ErrorIs(t, s.Do(func() error { _, err := Attach(Config{Interface: index}); return err }), unix.EOPNOTSUPP)
	e := attach(t, s, Config{Interface: index, Mode: Fallback})
	assert.Equal(t, Generic, e.Mode())
	require.NoError(t, e.Close())
}

func TestWhatIsPinnedIsTakenOver(t *testing.T) {
	s, index := lab(t)
	pins, closeFS, err := netlab.BPFFS()
	testenv.Require(t, "bpffs", err)
	defer func() { assert.NoError(t, closeFS()) }()
	pins = filepath.Join(pins, "entry")
	require.NoError(t, os.Mkdir(pins, 0o700))
	cfg := Config{Interface: index, PinPath: pins}

	generic := cfg
	generic.Mode = Generic
	first := attach(t, s, generic)
	require.NoError(t, first.Set(Balancer, verdict(t, 3)))
	require.NoError(t, first.Close())
	second := attach(t, s, cfg)
	assert.Equal(t, Generic, second.Mode(), "it has the mode it was attached in")
	assert.EqualValues(t, 3, run(t, second), "the stages are those of before")
	assert.ErrorIs(t, s.Do(func() error { _, err := Attach(Config{Interface: index}); return err }), unix.EEXIST)

	other, err := s.Link("b")
	require.NoError(t, err)
	_, err = Attach(Config{Interface: other.Attrs().Index, PinPath: pins})
	assert.ErrorIs(t, err, ErrConfig, "another interface")

	require.NoError(t, second.Detach())
	left, err := os.ReadDir(pins)
	require.NoError(t, err)
	assert.Empty(t, left)
	third := attach(t, s, Config{Interface: index})
	require.NoError(t, third.Close())
	_, err = Attach(Config{Interface: index, PinPath: filepath.Join(pins, "missing")})
	assert.Error(t, err, "no such directory")
}

func TestPinsOfWhatHasEndedAreReplaced(t *testing.T) {
	s, index := lab(t)
	pins, closeFS, err := netlab.BPFFS()
	testenv.Require(t, "bpffs", err)
	defer func() { assert.NoError(t, closeFS()) }()
	pins = filepath.Join(pins, "entry")
	require.NoError(t, os.Mkdir(pins, 0o700))
	first := attach(t, s, Config{Interface: index, PinPath: pins})
	require.NoError(t, first.Set(Shield, verdict(t, 1)))
	require.NoError(t, first.Close())
	require.NoError(t, os.Remove(filepath.Join(pins, pinnedLink)), "whoever pinned it ended in between")
	second := attach(t, s, Config{Interface: index, PinPath: pins})
	assert.EqualValues(t, 1, run(t, second), "the stages are there")
	require.NoError(t, second.Close())

	gone, err := s.Link("a")
	require.NoError(t, err)
	require.NoError(t, s.Links.LinkDel(gone))
	require.NoError(t, netlab.Join(s, "c", s, "d"))
	link, err := s.Link("c")
	require.NoError(t, err)
	third := attach(t, s, Config{Interface: link.Attrs().Index, PinPath: pins})
	assert.EqualValues(t, 1, run(t, third))
	require.NoError(t, third.Detach())
}

func TestWhoLacksCapabilitiesIsToldWhich(t *testing.T) {
	bit := func(all ...int) (set uint64) {
		for _, c := range all {
			set |= 1 << c
		}
		return set
	}
	for _, tc := range []struct {
		set  uint64
		want []string
	}{
		{0, []string{"CAP_BPF", "CAP_NET_ADMIN", "CAP_PERFMON"}},
		{bit(unix.CAP_BPF), []string{"CAP_NET_ADMIN", "CAP_PERFMON"}},
		{bit(unix.CAP_BPF, unix.CAP_NET_ADMIN), []string{"CAP_PERFMON"}},
		{bit(unix.CAP_BPF, unix.CAP_NET_ADMIN, unix.CAP_PERFMON), nil},
		{bit(unix.CAP_SYS_ADMIN), nil},
	} {
		assert.Equal(t, tc.want, lacks(tc.set), "%#x", tc.set)
	}
}
