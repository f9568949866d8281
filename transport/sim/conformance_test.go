package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/testenv"
	"github.com/weirnet/weir/transport"
	"github.com/weirnet/weir/transport/sim"
	"github.com/weirnet/weir/transport/transporttest"
)

func factory(seed uint64, cfg sim.Config) transporttest.Factory {
	worlds := map[testing.TB]*sim.World{}
	return transporttest.Factory{
		Name: fmt.Sprintf("sim with seed %d", seed),
		Open: func(tb testing.TB, n int) []transport.Transport {
			w := sim.NewWorld(seed, cfg)
			worlds[tb] = w
			trs := make([]transport.Transport, n)
			for i := range trs {
				trs[i] = w.Open()
			}
			return trs
		},
		Features: transporttest.Features{
			Unix: true, IPv6: true, SendFile: true, Lends: true, VirtualTime: true,
			SendNow: cfg.SendNow, Late: cfg.Faults.Late > 0,
		},
		BlockBytes: 16 << 10,
		Check: func(tb testing.TB, _ []transport.Transport) {
			if err := worlds[tb].Check(); err != nil {
				tb.Error(err)
			}
		},
	}
}

func TestConformance(t *testing.T) {
	for _, now := range []bool{false, true} {
		t.Run(fmt.Sprintf("sendnow=%v", now), func(t *testing.T) {
			transporttest.Run(t, factory(1, sim.Config{SendNow: now}))
		})
	}
}

func TestConformanceWithMildFaults(t *testing.T) {
	seeds := uint64(50)
	if !testenv.Thorough() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			transporttest.Run(t, factory(seed, sim.Config{
				Jitter: 200 * time.Microsecond, Faults: sim.Mild(),
				SendNow: seed%2 == 1,
			}))
		})
	}
}

// Each fault of Mild alone, nearly always: what one hides another shows.
func TestConformanceWithEachFault(t *testing.T) {
	for _, each := range []struct {
		name   string
		faults sim.Faults
	}{
		{"Split", sim.Faults{Split: 0.9}},
		{"ShortRead", sim.Faults{ShortRead: 0.9}},
		{"ShortWrite", sim.Faults{ShortWrite: 0.5}},
		{"QuietProgress", sim.Faults{QuietProgress: 1}},
		{"Overshoot", sim.Faults{Overshoot: 1}},
		{"NoBlock", sim.Faults{NoBlock: 0.9}},
		{"Late", sim.Faults{Late: 0.9}},
		{"Reorder", sim.Faults{Reorder: 1}},
		{"LateCancel", sim.Faults{LateCancel: 1}},
		{"EarlyReturn", sim.Faults{EarlyReturn: 0.3}},
		{"ShortBatch", sim.Faults{ShortBatch: 1}},
	} {
		t.Run(each.name, func(t *testing.T) {
			transporttest.Run(t, factory(1, sim.Config{Faults: each.faults}))
		})
	}
}
