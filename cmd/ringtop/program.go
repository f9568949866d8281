package main

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// What the programs in the kernel count is bounded by these, whatever the traced process does.
const (
	// requests is how many requests may be under way with their time of submission known. Of more, the oldest are
	// forgotten: they count as completions without a latency.
	requests = 64 << 10
	// rings is how many rings of the process are known at a time.
	rings = 1 << 10
	// unknown is where completions count that belong to no request that was seen.
	unknown = 256
)

// counters is what the kernel's side counts for each opcode. Their order is that of the offsets below.
type counters struct {
	Submitted, Completed, Posted, Failed, Async, Overflow uint64
	Latency                                               Histogram
}

const (
	offSubmitted = 8 * iota
	offCompleted
	offPosted
	offFailed
	offAsync
	offOverflow
	offLatency
	sizeCounters = offLatency + 8*buckets
)

// The stack of each program: what the helpers read and write.
const (
	atOpcode  = -8  // u32, the key of the counters
	atScratch = -16 // 8 bytes
	atRing    = -32 // the key of the tags: ring and user data
	atData    = -24
	atRequest = -40 // the key of the requests
	atTime    = -56 // the value of the requests: nanoseconds and opcode
	atKind    = -48 // u64; also the value of the tags
	atPID     = -64 // struct bpf_pidns_info: thread and process
)

// layout is where this kernel keeps what the programs read. It comes from the kernel's type information.
type layout struct {
	opcode, ring, data int32 // in struct io_kiocb
	cqeData, cqeResult int32 // in struct io_uring_cqe
	completeHasCQE     bool  // io_uring_complete has a pointer to the CQE; before, its fields one by one
	opcodes            []string
}

// maps are the maps that the programs share.
type maps struct{ counters, requests, tags, rings *ebpf.Map }

// offset finds a member, also in unnamed structs and unions.
func offset(t btf.Type, name string) (int32, bool) {
	var members []btf.Member
	switch t := btf.UnderlyingType(t).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		if m.Name == name {
			return int32(m.Offset.Bytes()), true
		}
		if m.Name == "" {
			if inner, ok := offset(m.Type, name); ok {
				return int32(m.Offset.Bytes()) + inner, true
			}
		}
	}
	return 0, false
}

func readLayout(spec *btf.Spec) (l layout, err error) {
	var request, cqe, inner *btf.Struct
	var ops *btf.Enum
	err = errors.Join(spec.TypeByName("io_kiocb", &request), spec.TypeByName("io_uring_cqe", &cqe),
		spec.TypeByName("io_cqe", &inner), spec.TypeByName("io_uring_op", &ops))
	if err != nil {
		return l, fmt.Errorf("types of this kernel: %w", err)
	}
	member := func(t *btf.Struct, name string) int32 {
		at, ok := offset(t, name)
		if !ok {
			err = errors.Join(err, fmt.Errorf("struct %s of this kernel has no %s", t.Name, name))
		}
		return at
	}
	l.opcode, l.ring = member(request, "opcode"), member(request, "ctx")
	l.data = member(request, "cqe") + member(inner, "user_data")
	l.cqeData, l.cqeResult = member(cqe, "user_data"), member(cqe, "res")
	if err != nil {
		return l, err
	}
	l.opcodes = names(ops)
	l.completeHasCQE, err = completeShape(spec)
	return l, err
}

// names are the opcodes' names in the order of their numbers.
func names(ops *btf.Enum) []string {
	const prefix = "IORING_OP_"
	var found []string
	for number := range uint64(unknown) {
		for _, v := range ops.Values {
			if v.Value == number && len(v.Name) > len(prefix) && v.Name != prefix+"LAST" {
				found = append(found, v.Name[len(prefix):])
			}
		}
		if uint64(len(found)) == number {
			break
		}
	}
	return found
}

// completeShape reports whether the third argument of io_uring_complete is a pointer to the CQE.
func completeShape(spec *btf.Spec) (bool, error) {
	var def *btf.Typedef
	if err := spec.TypeByName("btf_trace_io_uring_complete", &def); err != nil {
		return false, fmt.Errorf("tracepoint io_uring_complete: %w", err)
	}
	if pointer, ok := def.Type.(*btf.Pointer); ok {
		if proto, ok := pointer.Target.(*btf.FuncProto); ok && len(proto.Params) > 3 { // the first is not passed on
			_, isPointer := btf.UnderlyingType(proto.Params[3].Type).(*btf.Pointer)
			return isPointer, nil
		}
	}
	return false, fmt.Errorf("tracepoint io_uring_complete has a shape that is not known: %v", def.Type)
}

// argument loads argument i of the tracepoint.
func argument(to asm.Register, i int16) asm.Instruction {
	return asm.LoadMem(to, asm.R6, 8*i, asm.DWord)
}

// stack sets a register to a place on the stack.
func stack(to asm.Register, at int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Reg(to, asm.RFP), asm.Add.Imm(to, at)}
}

// onlyOf ends the program unless it runs for the process. R6 holds the tracepoint's arguments from here on. The
// kernel compares with a device number of its own form (MAJOR in linux/kdev_t.h).
func onlyOf(ns Namespace) asm.Instructions {
	device := int64(unix.Major(ns.Device))<<20 | int64(unix.Minor(ns.Device))
	code := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadImm(asm.R1, device, asm.DWord),
		asm.LoadImm(asm.R2, int64(ns.Inode), asm.DWord),
	}
	code = append(code, stack(asm.R3, atPID)...)
	return append(code,
		asm.Mov.Imm(asm.R4, 8),
		asm.FnGetNsCurrentPidTgid.Call(),
		asm.JNE.Imm(asm.R0, 0, "exit"),
		asm.LoadMem(asm.R1, asm.RFP, atPID+4, asm.Word),
		asm.JNE.Imm(asm.R1, ns.PID, "exit"),
	)
}

// probe copies size bytes of the kernel's memory to the stack.
func probe(at, size int32, from asm.Register, offset int32) asm.Instructions {
	return append(stack(asm.R1, at),
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, from),
		asm.Add.Imm(asm.R3, offset),
		asm.FnProbeReadKernel.Call(),
	)
}

// opcodeOf puts the opcode of the request in R7 where the key of the counters is.
func opcodeOf(l layout) asm.Instructions {
	return append(probe(atScratch, 1, asm.R7, l.opcode),
		asm.LoadMem(asm.R1, asm.RFP, atScratch, asm.Byte),
		asm.StoreMem(asm.RFP, atOpcode, asm.R1, asm.Word),
	)
}

// lookup leaves a pointer to the value in R0, or 0.
func lookup(m *ebpf.Map, key int32) asm.Instructions {
	code := append(stack(asm.R2, key), asm.LoadMapPtr(asm.R1, m.FD()))
	return append(code, asm.FnMapLookupElem.Call())
}

func update(m *ebpf.Map, key, value int32) asm.Instructions {
	code := append(stack(asm.R2, key), stack(asm.R3, value)...)
	return append(code, asm.Mov.Imm(asm.R4, 0), asm.LoadMapPtr(asm.R1, m.FD()), asm.FnMapUpdateElem.Call())
}

// store is update for a value of some words. The kernel uses the memory of a request again and again, so the key is
// nearly always there: to write over its value costs a tenth of an update.
func store(m *ebpf.Map, key, value int32, words int) asm.Instructions {
	missing, stored := fmt.Sprintf("missing-%d", key), fmt.Sprintf("stored-%d", key)
	code := append(lookup(m, key), asm.JEq.Imm(asm.R0, 0, missing))
	for i := range int16(words) {
		code = append(code, asm.LoadMem(asm.R1, asm.RFP, int16(value)+8*i, asm.DWord),
			asm.StoreMem(asm.R0, 8*i, asm.R1, asm.DWord))
	}
	insert := update(m, key, value)
	insert[0] = insert[0].WithSymbol(missing)
	return join(code, asm.Instructions{asm.Ja.Label(stored)}, insert,
		asm.Instructions{asm.Mov.Imm(asm.R1, 0).WithSymbol(stored)})
}

// countersOf leaves a pointer to the counters of the opcode in R8.
func countersOf(m maps) asm.Instructions {
	return append(lookup(m.counters, atOpcode), asm.JEq.Imm(asm.R0, 0, "exit"), asm.Mov.Reg(asm.R8, asm.R0))
}

// count adds one to a counter. Programs on other processors count in the same place, hence an atomic.
func count(counter int16) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R8, asm.R1, asm.DWord, counter)}
}

// bucketOf leaves the bucket of the value in R1 in R2: the highest bit and the two below it. It uses R3 and R4.
func bucketOf() asm.Instructions {
	code := asm.Instructions{asm.Mov.Imm(asm.R2, 0), asm.Mov.Reg(asm.R3, asm.R1)}
	for _, step := range []int32{32, 16, 8, 4, 2, 1} { // R2 becomes the number of the highest bit
		skip := fmt.Sprintf("below-%d", step)
		code = append(code,
			asm.Mov.Reg(asm.R4, asm.R3), asm.RSh.Imm(asm.R4, step),
			asm.JEq.Imm(asm.R4, 0, skip),
			asm.Mov.Reg(asm.R3, asm.R4), asm.Add.Imm(asm.R2, step),
			asm.Mov.Reg(asm.R4, asm.R4).WithSymbol(skip),
		)
	}
	return append(code,
		asm.JGE.Imm(asm.R2, subBits, "large"),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Ja.Label("bucket"),
		asm.Mov.Reg(asm.R4, asm.R2).WithSymbol("large"),
		asm.Sub.Imm(asm.R4, subBits),
		asm.Mov.Reg(asm.R3, asm.R1), asm.RSh.Reg(asm.R3, asm.R4), asm.And.Imm(asm.R3, 1<<subBits-1),
		asm.Sub.Imm(asm.R2, 1), asm.LSh.Imm(asm.R2, subBits),
		asm.Add.Reg(asm.R2, asm.R3),
		asm.And.Imm(asm.R2, buckets-1).WithSymbol("bucket"),
	)
}

func end() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("exit"), asm.Return()}
}

func join(parts ...asm.Instructions) (all asm.Instructions) {
	for _, part := range parts {
		all = append(all, part...)
	}
	return all
}

// submitted: io_uring_submit_req(request). It remembers when, and which opcode has this user data on this ring.
func submitted(l layout, m maps, ns Namespace) asm.Instructions {
	return join(onlyOf(ns), asm.Instructions{argument(asm.R7, 0)}, opcodeOf(l),
		asm.Instructions{
			asm.StoreMem(asm.RFP, atKind, asm.R1, asm.DWord),
			asm.StoreMem(asm.RFP, atRequest, asm.R7, asm.DWord),
		},
		probe(atRing, 8, asm.R7, l.ring), probe(atData, 8, asm.R7, l.data), mark(m),
		asm.Instructions{asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, atTime, asm.R0, asm.DWord)},
		store(m.requests, atRequest, atTime, 2), store(m.tags, atRing, atKind, 1),
		countersOf(m), count(offSubmitted), end())
}

// completed: io_uring_complete(ring, request, cqe). Without a request, the completion is one of several of a request,
// or a message from another ring: its user data says which opcode, if anything does. R9 is the result.
func completed(l layout, m maps, ns Namespace) asm.Instructions {
	outcome := asm.Instructions{
		argument(asm.R1, 2), asm.StoreMem(asm.RFP, atData, asm.R1, asm.DWord), argument(asm.R9, 3),
	}
	if l.completeHasCQE {
		outcome = join(asm.Instructions{argument(asm.R9, 2)},
			probe(atData, 8, asm.R9, l.cqeData), probe(atScratch, 4, asm.R9, l.cqeResult),
			asm.Instructions{asm.LoadMem(asm.R9, asm.RFP, atScratch, asm.Word)})
	}
	known := join(asm.Instructions{
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), asm.StoreMem(asm.RFP, atTime, asm.R1, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "early"), // its submission was not seen; that of an earlier one in the same memory was
		asm.LoadMem(asm.R1, asm.R0, 8, asm.DWord), asm.StoreMem(asm.RFP, atOpcode, asm.R1, asm.Word),
		asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
	}, countersOf(m), asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.LoadMem(asm.R1, asm.RFP, atTime, asm.DWord), asm.Sub.Reg(asm.R0, asm.R1), asm.Mov.Reg(asm.R1, asm.R0),
	}, bucketOf(), asm.Instructions{
		asm.LSh.Imm(asm.R2, 3), asm.Add.Reg(asm.R2, asm.R8), asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R2, asm.R1, asm.DWord, offLatency),
		asm.Ja.Label("count"),
	})
	early := opcodeOf(l) // submitted before anybody looked
	early[0] = early[0].WithSymbol("early")
	return join(onlyOf(ns), outcome, ringOf(), mark(m), asm.Instructions{
		argument(asm.R7, 1),
		asm.JEq.Imm(asm.R7, 0, "posted"),
		asm.StoreMem(asm.RFP, atRequest, asm.R7, asm.DWord),
	}, lookup(m.requests, atRequest), asm.Instructions{asm.JEq.Imm(asm.R0, 0, "early")}, known,
		early, countersOf(m), asm.Instructions{asm.Ja.Label("count")},
		tagged(m, "posted"), countersOf(m), count(offPosted),
		asm.Instructions{asm.Mov.Imm(asm.R1, 1).WithSymbol("count")}, count(offCompleted),
		asm.Instructions{asm.JSGE.Imm32(asm.R9, 0, "exit")}, count(offFailed), end())
}

// ringOf stores the ring, the first argument, in the key of the tags.
func ringOf() asm.Instructions {
	return asm.Instructions{argument(asm.R1, 0), asm.StoreMem(asm.RFP, atRing, asm.R1, asm.DWord)}
}

// mark remembers the ring as one of the process's.
func mark(m maps) asm.Instructions {
	return join(lookup(m.rings, atRing), asm.Instructions{asm.JNE.Imm(asm.R0, 0, "marked")},
		update(m.rings, atRing, atRing), asm.Instructions{asm.Mov.Imm(asm.R1, 0).WithSymbol("marked")})
}

// woken: io_uring_task_add(request, mask). A file has become ready that the request waits for. That happens on
// anybody's thread, so the ring says whose it is. What was submitted before tracing began gets its tag here.
func woken(l layout, m maps, _ Namespace) asm.Instructions {
	return join(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1), argument(asm.R7, 0)},
		probe(atRing, 8, asm.R7, l.ring), probe(atData, 8, asm.R7, l.data),
		lookup(m.rings, atRing), asm.Instructions{asm.JEq.Imm(asm.R0, 0, "exit")},
		lookup(m.tags, atRing), asm.Instructions{asm.JNE.Imm(asm.R0, 0, "exit")},
		opcodeOf(l), asm.Instructions{asm.StoreMem(asm.RFP, atKind, asm.R1, asm.DWord)},
		update(m.tags, atRing, atKind), end())
}

// tagged stores the opcode that the ring's user data had last in the key of the counters, unknown when there is none.
func tagged(m maps, label string) asm.Instructions {
	code := join(asm.Instructions{asm.StoreImm(asm.RFP, atOpcode, unknown, asm.Word)}, lookup(m.tags, atRing),
		asm.Instructions{
			asm.JEq.Imm(asm.R0, 0, label+"-untagged"),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
			asm.StoreMem(asm.RFP, atOpcode, asm.R1, asm.Word),
			asm.Mov.Imm(asm.R1, 0).WithSymbol(label + "-untagged"),
		})
	code[0] = code[0].WithSymbol(label)
	return code
}

// punted: io_uring_queue_async_work(request, rw). A worker of io-wq gets the request.
func punted(l layout, m maps, ns Namespace) asm.Instructions {
	return join(onlyOf(ns), asm.Instructions{argument(asm.R7, 0)}, opcodeOf(l), countersOf(m), count(offAsync), end())
}

// overflown: io_uring_cqe_overflow(ring, user data, result, ...). The completion waits in the kernel; it is not told to
// io_uring_complete, then or later.
func overflown(_ layout, m maps, ns Namespace) asm.Instructions {
	return join(onlyOf(ns), ringOf(), asm.Instructions{
		argument(asm.R1, 1), asm.StoreMem(asm.RFP, atData, asm.R1, asm.DWord), argument(asm.R9, 2),
	}, tagged(m, "tag"), countersOf(m), count(offOverflow), count(offCompleted),
		asm.Instructions{asm.JSGE.Imm32(asm.R9, 0, "exit")}, count(offFailed), end())
}
