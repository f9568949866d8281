package measure

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/xdp"
)

// Meter measures one program. It belongs to one goroutine.
type Meter struct{ own, floor measureObjects }

// New returns a Meter of a program, for frames to an interface's MAC from so many clients, a power of two up to
// 2^32, whose addresses differ in their last bits. Without a program it can Flood only.
func New(program *ebpf.Program, mac [6]byte, clients uint64) (*Meter, error) {
	if bits.OnesCount64(clients) != 1 || clients > 1<<32 {
		return nil, fmt.Errorf("measure: %d clients, want a power of two up to 2^32: %w", clients, xdp.ErrConfig)
	}
	m := &Meter{}
	var padded [8]byte
	copy(padded[:], mac[:])
	for _, objects := range []*measureObjects{&m.own, &m.floor} {
		spec, err := loadMeasure()
		if err == nil {
			err = errors.Join(
				spec.Variables["own_mac"].Set(padded),
				spec.Variables["flow_mask"].Set(bits.ReverseBytes32(uint32(clients-1)))) // in network order
		}
		if err == nil {
			err = spec.LoadAndAssign(objects, nil)
		}
		if err == nil && objects == &m.own && program != nil {
			err = objects.Stages.Put(uint32(xdp.Balancer), program)
		} else if err == nil {
			err = objects.Stages.Put(uint32(xdp.Balancer), objects.FloorTx)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("measure: load: %w", err), m.Close())
		}
	}
	return m, nil
}

// Close gives the programs back.
func (m *Meter) Close() error {
	var errs []error
	for _, objects := range []*measureObjects{&m.own, &m.floor} {
		for _, closer := range []io.Closer{objects.Vary, objects.FloorTx, objects.Stages} {
			errs = append(errs, closer.Close())
		}
	}
	return errors.Join(errs...)
}

// Run returns what a packet takes: the wrapper with the program, and the wrapper with one that sends back at once.
// They are measured one right after the other, so that both have the same of what else the machine does.
func (m *Meter) Run(frame []byte, packets int) (own, floor time.Duration, err error) {
	if _, own, err = m.own.Vary.Benchmark(frame, packets, nil); err == nil {
		_, floor, err = m.floor.Vary.Benchmark(frame, packets, nil)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("measure: %w", err)
	}
	return own, floor, nil
}

// Flood sends frames out of an interface of the caller's network namespace, as fast as one processor can. What is at
// the other end of a virtual interface needs a program of XDP as well.
func (m *Meter) Flood(index int, frame []byte, packets int) error {
	_, err := m.floor.Vary.Run(&ebpf.RunOptions{
		Data: frame, Repeat: uint32(packets), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES,
		Context: measureXdpMd{DataEnd: uint32(len(frame)), IngressIfindex: uint32(index)},
	})
	if err != nil {
		return fmt.Errorf("measure: send %d packets out of interface %d: %w", packets, index, err)
	}
	return nil
}
