//go:build ignore

// Programs for measurements: a wrapper that makes a frame again what it was before it calls what is measured, and the least
// that a program can do.
#include "packet.h"
#include "stages.h"

volatile const __u8 own_mac[8];
volatile const __u32 flow_mask; // the bits of the client's address that are random

SEC("xdp.frags")
int vary(struct xdp_md *ctx)
{
	struct view v = view_of(ctx);
	struct eth *eth = at(&v, 0, sizeof(*eth));
	if (!eth)
		return XDP_ABORTED;
#pragma unroll
	for (int i = 0; i < 6; i++)
		eth->dst[i] = own_mac[i];
	__u32 low = random_u32() & flow_mask;
	if (eth->type == ETHERTYPE_IP4) {
		struct ip4 *ip = at(&v, sizeof(*eth), sizeof(*ip));
		if (!ip)
			return XDP_ABORTED;
		ip->src = (ip->src & ~flow_mask) | low;
	} else {
		struct ip6 *ip = at(&v, sizeof(*eth), sizeof(*ip));
		if (!ip)
			return XDP_ABORTED;
		ip->src[3] = (ip->src[3] & ~flow_mask) | low;
	}
	tail_call(ctx, &stages, STAGE_BALANCER);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int floor_tx(struct xdp_md *ctx)
{
	return XDP_TX;
}

char license_text[] SEC("license") = "Apache-2.0";
