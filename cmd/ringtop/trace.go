package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// Tracer counts what a process's rings do, by programs on the kernel's tracepoints. Nothing is pinned: the kernel
// removes programs and maps when Close is called, or when the process that opened them ends in whatever way. One
// goroutine.
type Tracer struct {
	opcodes []string
	maps    maps
	held    []io.Closer
}

// Activity is what the opcodes have done since tracing began.
type Activity struct {
	names []string
	all   []counters // by opcode; the last is unknown
}

// point is a tracepoint and the program that is attached to it.
type point struct {
	name    string
	program func(layout, maps, Namespace) asm.Instructions
}

func points() []point {
	return []point{ // completions first: a request whose completion is missed would look as if it were under way
		{"io_uring_complete", completed},
		{"io_uring_cqe_overflow", overflown},
		{"io_uring_queue_async_work", punted},
		{"io_uring_submit_req", submitted},
		{"io_uring_task_add", woken},
	}
}

// OpenTracer begins to trace the process.
func OpenTracer(p *Process) (*Tracer, error) {
	t := &Tracer{}
	if err := t.open(p); err != nil {
		err = errors.Join(err, t.Close())
		if errors.Is(err, fs.ErrPermission) { // what more it says is advice for older kernels
			err = fmt.Errorf("tracing: %w: it needs the capabilities CAP_BPF and CAP_PERFMON, which root has", ErrPermission)
		}
		return nil, err
	}
	return t, nil
}

func (t *Tracer) open(p *Process) error {
	ns, err := p.Namespace()
	if err != nil {
		return err
	}
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return fmt.Errorf("the kernel's type information (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	l, err := readLayout(spec)
	if err != nil {
		return err
	}
	t.opcodes = l.opcodes
	if err := t.makeMaps(); err != nil {
		return err
	}
	for _, at := range points() {
		if err := t.attach(at.name, at.program(l, t.maps, ns)); err != nil {
			return fmt.Errorf("tracepoint %s: %w", at.name, err)
		}
	}
	return nil
}

func (t *Tracer) makeMaps() error {
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&t.maps.counters, ebpf.MapSpec{
			Name: "ringtop_counts", Type: ebpf.Array, KeySize: 4, ValueSize: sizeCounters, MaxEntries: unknown + 1,
		}},
		{&t.maps.requests, ebpf.MapSpec{
			Name: "ringtop_reqs", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 16, MaxEntries: requests,
		}},
		{&t.maps.tags, ebpf.MapSpec{
			Name: "ringtop_tags", Type: ebpf.LRUHash, KeySize: 16, ValueSize: 8, MaxEntries: requests,
		}},
		{&t.maps.rings, ebpf.MapSpec{
			Name: "ringtop_rings", Type: ebpf.LRUHash, KeySize: 8, ValueSize: 8, MaxEntries: rings,
		}},
	} {
		made, err := ebpf.NewMap(&m.spec)
		if err != nil {
			return fmt.Errorf("map %s: %w", m.spec.Name, err)
		}
		*m.to = made
		t.held = append(t.held, made)
	}
	return nil
}

func (t *Tracer) attach(name string, code asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "ringtop", Type: ebpf.RawTracepoint, Instructions: code, License: "GPL", // which the helpers ask for
	})
	if err != nil {
		return err
	}
	t.held = append(t.held, program)
	attached, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: name, Program: program})
	if err != nil {
		return err
	}
	t.held = append(t.held, attached)
	return nil
}

// Activity reads the counters.
func (t *Tracer) Activity() (Activity, error) {
	a := Activity{names: t.opcodes, all: make([]counters, len(t.opcodes)+1)}
	for i := range a.all {
		key := uint32(i)
		if i == len(t.opcodes) {
			key = unknown
		}
		if err := t.maps.counters.Lookup(key, &a.all[i]); err != nil {
			return Activity{}, fmt.Errorf("counters: %w", err)
		}
	}
	return a, nil
}

// Close ends the tracing.
func (t *Tracer) Close() (err error) {
	for i := len(t.held) - 1; i >= 0; i-- { // the links first
		err = errors.Join(err, t.held[i].Close())
	}
	t.held = nil
	return err
}

// Of returns what one opcode has done, by its name.
func (a Activity) Of(name string) counters {
	for i, of := range a.names {
		if of == name {
			return a.all[i]
		}
	}
	return counters{}
}
