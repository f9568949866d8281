// The programs that share an interface. It has room for one, the entry, which calls them in this order; each goes on to the
// next one when it has nothing against a packet.
#ifndef WEIR_STAGES_H
#define WEIR_STAGES_H

#include "kernel.h"

enum stage {
	STAGE_SHIELD,
	STAGE_BALANCER,
	STAGES,
};

struct {
	__uint(type, MAP_PROG_ARRAY);
	__uint(max_entries, STAGES);
	__type(key, __u32);
	__type(value, __u32);
} stages SEC(".maps");

// next_stage goes on to the stages from this one on. It comes back when there is none, and the kernel gets the packet.
INLINE int next_stage(struct xdp_md *ctx, enum stage first)
{
#pragma unroll
	for (__u32 stage = first; stage < STAGES; stage++)
		tail_call(ctx, &stages, stage);
	return XDP_PASS;
}

#endif
