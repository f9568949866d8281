package measure

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/xdp"
)

// Meter measures one program. It belongs to one goroutine.
type Meter struct{ objects measureObjects }

// New returns a Meter for frames to an interface's MAC from so many clients, a power of two up to 2^32, whose
// addresses differ in their last bits.
func New(mac [6]byte, clients uint64) (*Meter, error) {
	if bits.OnesCount64(clients) != 1 || clients > 1<<32 {
		return nil, fmt.Errorf("measure: %d clients, want a power of two up to 2^32: %w", clients, xdp.ErrConfig)
	}
	spec, err := loadMeasure()
	if err != nil {
		return nil, err
	}
	var padded [8]byte
	copy(padded[:], mac[:])
	mask := bits.ReverseBytes32(uint32(clients - 1)) // in network order
	if err := spec.Variables["own_mac"].Set(padded); err != nil {
		return nil, err
	}
	if err := spec.Variables["flow_mask"].Set(mask); err != nil {
		return nil, err
	}
	m := &Meter{}
	if err := spec.LoadAndAssign(&m.objects, nil); err != nil {
		return nil, fmt.Errorf("measure: load: %w", err)
	}
	return m, nil
}

// Close gives the programs back.
func (m *Meter) Close() error { return m.objects.Close() }

// Run returns what a packet takes: the wrapper with the program, and the wrapper with one that sends back at once.
// They take turns, so that both have the same of what else the machine does.
func (m *Meter) Run(program *ebpf.Program, frame []byte, rounds, packets int) (own, floor time.Duration, err error) {
	for range rounds {
		for _, p := range []struct {
			program *ebpf.Program
			total   *time.Duration
		}{{program, &own}, {m.objects.FloorTx, &floor}} {
			if err := m.objects.Stages.Put(uint32(xdp.Balancer), p.program); err != nil {
				return 0, 0, fmt.Errorf("measure: %w", err)
			}
			_, each, err := m.objects.Vary.Benchmark(frame, packets, nil)
			if err != nil {
				return 0, 0, fmt.Errorf("measure: %w", err)
			}
			*p.total += each
		}
	}
	return own / time.Duration(rounds), floor / time.Duration(rounds), nil
}

// Flood sends frames out of an interface of the caller's network namespace, as fast as one processor can. What is at
// the other end of a virtual interface needs a program of XDP as well.
func (m *Meter) Flood(index int, frame []byte, packets int) error {
	if err := m.objects.Stages.Put(uint32(xdp.Balancer), m.objects.FloorTx); err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	_, err := m.objects.Vary.Run(&ebpf.RunOptions{
		Data: frame, Repeat: uint32(packets), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		Context: measureXdpMd{DataEnd: uint32(len(frame)), IngressIfindex: uint32(index)},
	})
	if err != nil {
		return fmt.Errorf("measure: send %d packets out of interface %d: %w", packets, index, err)
	}
	return nil
}
