//go:build ignore

// The program that is attached to an interface.
#include "stages.h"

SEC("xdp.frags")
int entry(struct xdp_md *ctx)
{
	return next_stage(ctx, 0);
}

char license_text[] SEC("license") = "Apache-2.0";
