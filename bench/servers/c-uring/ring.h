// One io_uring with a ring of receive buffers, on raw system calls (io_uring_setup(2), io_uring_enter(2),
// io_uring_register(2)). It belongs to the thread that opens it.
#pragma once

#include <errno.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef IORING_SETUP_NO_SQARRAY // Linux 6.6
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif

enum { sq_entries = 4096, cq_entries = 16384, buffer_bytes = 16 << 10, buffer_count = 1024, buffer_group = 1 };

struct ring {
	int fd;
	unsigned sq_tail; // what was prepared
	unsigned sq_size, sq_mask, cq_mask;
	_Atomic unsigned *k_sq_head, *k_sq_tail, *k_cq_head, *k_cq_tail, *k_sq_flags;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	char *buffers;
	struct io_uring_buf_ring *free;
	uint16_t free_tail;
};

static inline void *ring_map(size_t n, int fd, off_t off) {
	int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
	void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, flags, fd, off);
	if (p == MAP_FAILED) die("mmap");
	return p;
}

static inline char *ring_buffer(struct ring *r, unsigned id) { return r->buffers + (size_t)id * buffer_bytes; }

// ring_recycle gives a receive buffer back; the kernel sees it from the next ring_wait on.
static inline void ring_recycle(struct ring *r, unsigned id) {
	struct io_uring_buf *b = &r->free->bufs[r->free_tail++ & (buffer_count - 1)];
	b->addr = (uintptr_t)ring_buffer(r, id);
	b->len = buffer_bytes;
	b->bid = id;
}

static inline void ring_publish_buffers(struct ring *r) {
	atomic_store_explicit((_Atomic uint16_t *)&r->free->tail, r->free_tail, memory_order_release);
}

static inline void ring_open(struct ring *r) {
	struct io_uring_params p = {
		.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE |
			 IORING_SETUP_CLAMP | IORING_SETUP_NO_SQARRAY,
		.cq_entries = cq_entries,
	};
	r->fd = syscall(SYS_io_uring_setup, sq_entries, &p);
	if (r->fd < 0) die("io_uring_setup");
	size_t sq = p.sq_off.array + p.sq_entries * sizeof(unsigned), cq = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *rings = ring_map(sq > cq ? sq : cq, r->fd, IORING_OFF_SQ_RING);
	r->sqes = ring_map(p.sq_entries * sizeof *r->sqes, r->fd, IORING_OFF_SQES);
	r->cqes = (void *)(rings + p.cq_off.cqes);
	r->k_sq_head = (void *)(rings + p.sq_off.head);
	r->k_sq_tail = (void *)(rings + p.sq_off.tail);
	r->k_sq_flags = (void *)(rings + p.sq_off.flags);
	r->k_cq_head = (void *)(rings + p.cq_off.head);
	r->k_cq_tail = (void *)(rings + p.cq_off.tail);
	r->sq_size = p.sq_entries;
	r->sq_mask = p.sq_entries - 1;
	r->cq_mask = p.cq_entries - 1;

	r->buffers = ring_map((size_t)buffer_count * buffer_bytes, -1, 0);
	r->free = ring_map(buffer_count * sizeof(struct io_uring_buf), -1, 0);
	struct io_uring_buf_reg reg = {.ring_addr = (uintptr_t)r->free, .ring_entries = buffer_count, .bgid = buffer_group};
	if (syscall(SYS_io_uring_register, r->fd, IORING_REGISTER_PBUF_RING, &reg, 1)) die("IORING_REGISTER_PBUF_RING");
	for (unsigned id = 0; id < buffer_count; id++) ring_recycle(r, id);
	ring_publish_buffers(r);
}

// ring_enter submits what was prepared and, with wait, waits for a completion.
static inline void ring_enter(struct ring *r, int wait) {
	atomic_store_explicit(r->k_sq_tail, r->sq_tail, memory_order_release);
	unsigned n = r->sq_tail - atomic_load_explicit(r->k_sq_head, memory_order_acquire);
	while (syscall(SYS_io_uring_enter, r->fd, n, wait, IORING_ENTER_GETEVENTS, NULL, 0) < 0) {
		if (errno != EINTR) die("io_uring_enter");
		n = r->sq_tail - atomic_load_explicit(r->k_sq_head, memory_order_acquire);
	}
	// 16384 completions were enough until now; one that is lost would read as a send that succeeded.
	if (atomic_load_explicit(r->k_sq_flags, memory_order_relaxed) & IORING_SQ_CQ_OVERFLOW) {
		errno = EOVERFLOW;
		die("completion queue");
	}
}

static inline struct io_uring_sqe *ring_prepare(struct ring *r) {
	if (r->sq_tail - atomic_load_explicit(r->k_sq_head, memory_order_acquire) == r->sq_size) ring_enter(r, 0);
	struct io_uring_sqe *s = &r->sqes[r->sq_tail++ & r->sq_mask];
	memset(s, 0, sizeof *s);
	return s;
}

// ring_drain copies up to n completions and makes room for as many.
static inline unsigned ring_drain(struct ring *r, struct io_uring_cqe *to, unsigned n) {
	unsigned head = atomic_load_explicit(r->k_cq_head, memory_order_relaxed);
	unsigned have = atomic_load_explicit(r->k_cq_tail, memory_order_acquire) - head;
	if (have < n) n = have;
	for (unsigned i = 0; i < n; i++) to[i] = r->cqes[(head + i) & r->cq_mask];
	atomic_store_explicit(r->k_cq_head, head + n, memory_order_release);
	return n;
}
