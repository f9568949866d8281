// What programs for XDP need of the kernel's interface: types, helpers by number, the macros that describe maps to the
// loader. The numbers are those of enum bpf_func_id and enum xdp_action in the kernel's uapi/linux/bpf.h, which never
// change. Nothing of the system is included, so that an object depends on the compiler alone. Little-endian only.
#ifndef WEIR_KERNEL_H
#define WEIR_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define htons(x) __builtin_bswap16(x)
#define ntohs(x) __builtin_bswap16(x)
#define htonl(x) __builtin_bswap32(x)

// A map's definition: its fields carry numbers and types in debug information (BTF).
#define __uint(name, val) int(*name)[val]
#define __type(name, val) __typeof__(val) *name
#define __array(name, val) __typeof__(val) *name[]

enum map_type {
	MAP_HASH = 1,
	MAP_ARRAY = 2,
	MAP_PROG_ARRAY = 3,
	MAP_PERCPU_HASH = 5,
	MAP_PERCPU_ARRAY = 6,
	MAP_LRU_HASH = 9,
	MAP_LRU_PERCPU_HASH = 10,
	MAP_LPM_TRIE = 11,
	MAP_ARRAY_OF_MAPS = 12,
};

enum map_flags {
	MAP_NO_PREALLOC = 1,
	MAP_NO_COMMON_LRU = 2,
	MAP_MMAPABLE = 1024,
};

enum update_flags {
	UPDATE_ANY = 0,
	UPDATE_NOEXIST = 1,
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
};

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*const map_delete)(void *map, const void *key) = (void *)3;
static __u64 (*const ktime_ns)(void) = (void *)5;
static __u32 (*const random_u32)(void) = (void *)7;
static __u32 (*const processor_id)(void) = (void *)8;
static long (*const tail_call)(void *ctx, void *prog_array, __u32 index) = (void *)12;
static long (*const xdp_adjust_head)(struct xdp_md *ctx, int delta) = (void *)44;
static __u64 (*const ktime_coarse_ns)(void) = (void *)160; // cheap; moves on once per tick
static __u64 (*const xdp_buff_len)(struct xdp_md *ctx) = (void *)188;

#endif
