// The bare server on io_uring: multishot accept and receive into a ring of buffers, one send per connection and pass, in
// place, which posts a completion only when it fails or is short (IOSQE_CQE_SKIP_SUCCESS with MSG_DONTWAIT).
#define _GNU_SOURCE
#include "../c-common/common.h"

#include <sys/uio.h>

#include "ring.h"

// What a completion is of, in the low bits of its user data; the rest is the connection.
enum operation { op_accept, op_receive, op_send_now, op_send_wait, op_mask = 7 };

enum { no_piece = -1 };

struct connection {
	int fd;
	int first, last;     // pieces to send in this pass
	uint8_t ended;       // the receive has ended: close when nothing is being sent
	uint8_t dead;        // sending has failed: throw output away
	uint8_t waiting;     // a send of unsent is under way; what comes meanwhile goes to later
	uint8_t starved;     // the receive has to be armed again
	struct bytes unsent, later, rest;
};

// piece is a run of bytes to send: a receive buffer (echo) or a part of loop.out (frames).
struct piece {
	int buffer; // -1: none
	uint32_t at, len;
	int next;
};

struct loop {
	const struct options *options;
	int listener;
	struct ring ring;
	struct io_uring_cqe done[cq_entries];
	struct piece pieces[cq_entries];
	struct iovec vectors[cq_entries];
	struct msghdr messages[cq_entries];
	struct connection *dirty[cq_entries];
	int piece_count, vector_count, message_count, dirty_count;
	struct connection **starved; // a stack
	size_t starved_count, starved_cap;
	struct bytes out;
};

static struct io_uring_sqe *prepare(struct loop *l, struct connection *c, int operation, int opcode, int fd) {
	struct io_uring_sqe *s = ring_prepare(&l->ring);
	s->opcode = opcode;
	s->fd = fd;
	s->user_data = (uintptr_t)c | operation;
	return s;
}

static void arm_accept(struct loop *l) {
	struct io_uring_sqe *s = prepare(l, NULL, op_accept, IORING_OP_ACCEPT, l->listener);
	s->ioprio = IORING_ACCEPT_MULTISHOT;
	s->accept_flags = SOCK_CLOEXEC;
}

static void arm_receive(struct loop *l, struct connection *c) {
	struct io_uring_sqe *s = prepare(l, c, op_receive, IORING_OP_RECV, c->fd);
	s->ioprio = IORING_RECV_MULTISHOT;
	s->flags = IOSQE_BUFFER_SELECT;
	s->buf_group = buffer_group;
}

static void starve(struct loop *l, struct connection *c) {
	if (l->starved_count == l->starved_cap) {
		l->starved_cap = l->starved_cap ? 2 * l->starved_cap : 64;
		l->starved = must_alloc(realloc(l->starved, l->starved_cap * sizeof *l->starved));
	}
	l->starved[l->starved_count++] = c;
}

static const char *piece_bytes(struct loop *l, const struct piece *p) {
	return p->buffer < 0 ? l->out.at + p->at : ring_buffer(&l->ring, p->buffer);
}

static void end_if_idle(struct connection *c) {
	if (!c->ended || c->waiting) return;
	close(c->fd);
	bytes_free(&c->unsent);
	bytes_free(&c->later);
	bytes_free(&c->rest);
	free(c);
}

// send_waiting sends c->unsent with a completion.
static void send_waiting(struct loop *l, struct connection *c) {
	struct io_uring_sqe *s = prepare(l, c, op_send_wait, IORING_OP_SEND, c->fd);
	s->addr = (uintptr_t)c->unsent.at;
	s->len = c->unsent.len;
	s->msg_flags = MSG_WAITALL | MSG_NOSIGNAL;
	c->waiting = 1;
}

// keep_unsent copies what comes behind the first n bytes of c's pieces.
static void keep_unsent(struct loop *l, struct connection *c, size_t n) {
	for (int i = c->first; i != no_piece; i = l->pieces[i].next) {
		const struct piece *p = &l->pieces[i];
		size_t skip = n < p->len ? n : p->len;
		n -= skip;
		bytes_append(&c->unsent, piece_bytes(l, p) + skip, p->len - skip);
	}
}

// sent_now handles a send that the kernel took in part or not at all.
static void sent_now(struct loop *l, struct connection *c, int result) {
	if (result < 0 && result != -EAGAIN) {
		c->dead = 1; // the receive will end, too
		return;
	}
	keep_unsent(l, c, result < 0 ? 0 : result);
	if (c->unsent.len) send_waiting(l, c);
}

static void sent_waiting(struct loop *l, struct connection *c, int result) {
	c->waiting = 0;
	if (result < 0 && result != -EAGAIN && result != -EINTR) {
		c->dead = 1;
		c->unsent.len = c->later.len = 0;
		end_if_idle(c);
		return;
	}
	bytes_consume(&c->unsent, result < 0 ? 0 : result);
	if (!c->unsent.len) {
		struct bytes sent = c->unsent;
		c->unsent = c->later;
		c->later = sent;
	}
	if (c->unsent.len) {
		send_waiting(l, c);
		return;
	}
	bytes_free(&c->unsent);
	bytes_free(&c->later);
	end_if_idle(c);
}

// settle ends the previous pass: whatever has failed by now has told so, so the rest was sent.
static void settle(struct loop *l) {
	for (int i = 0; i < l->piece_count; i++)
		if (l->pieces[i].buffer >= 0) ring_recycle(&l->ring, l->pieces[i].buffer);
	for (int i = 0; i < l->dirty_count; i++) {
		l->dirty[i]->first = l->dirty[i]->last = no_piece;
	}
	l->piece_count = l->vector_count = l->message_count = l->dirty_count = 0;
	l->out.len = 0;
}

static void add_piece(struct loop *l, struct connection *c, struct piece p) {
	int i = l->piece_count++;
	p.next = no_piece;
	l->pieces[i] = p;
	if (c->first == no_piece) {
		l->dirty[l->dirty_count++] = c;
		c->first = i;
	} else {
		l->pieces[c->last].next = i;
	}
	c->last = i;
}

// deliver handles bytes that came for c in a receive buffer.
static void deliver(struct loop *l, struct connection *c, int buffer, uint32_t len) {
	const char *in = ring_buffer(&l->ring, buffer);
	if (!l->options->frames && !c->waiting && !c->dead) {
		add_piece(l, c, (struct piece){.buffer = buffer, .len = len});
		return;
	}
	if (c->dead) {
	} else if (!l->options->frames) {
		bytes_append(&c->later, in, len);
	} else if (c->waiting) {
		if (replies_of(&c->later, &c->rest, in, len)) c->dead = 1;
	} else {
		size_t before = l->out.len;
		if (replies_of(&l->out, &c->rest, in, len)) c->dead = 1;
		if (l->out.len > before)
			add_piece(l, c, (struct piece){.buffer = -1, .at = before, .len = l->out.len - before});
	}
	ring_recycle(&l->ring, buffer);
	if (c->dead) shutdown(c->fd, SHUT_RDWR); // ends the receive
}

static void received(struct loop *l, struct connection *c, const struct io_uring_cqe *e) {
	if (e->flags & IORING_CQE_F_BUFFER) {
		int buffer = e->flags >> IORING_CQE_BUFFER_SHIFT;
		if (e->res > 0)
			deliver(l, c, buffer, e->res);
		else
			ring_recycle(&l->ring, buffer);
	}
	if (e->flags & IORING_CQE_F_MORE) return;
	if (e->res > 0)
		arm_receive(l, c);
	else if (e->res == -ENOBUFS)
		starve(l, c);
	else
		c->ended = 1;
}

static void accepted(struct loop *l, const struct io_uring_cqe *e) {
	if (!(e->flags & IORING_CQE_F_MORE)) arm_accept(l);
	if (e->res < 0) {
		errno = -e->res;
		if (errno == ECONNABORTED || errno == EINTR) return;
		die("accept");
	}
	struct connection *c = must_alloc(calloc(1, sizeof *c));
	c->fd = e->res;
	c->first = c->last = no_piece;
	arm_receive(l, c);
}

// send_dirty prepares one send for a connection with pieces.
static void send_dirty(struct loop *l, struct connection *c) {
	if (c->ended) { // somebody has to learn when it is sent
		keep_unsent(l, c, 0);
		send_waiting(l, c);
		return;
	}
	struct io_uring_sqe *s = prepare(l, c, op_send_now, IORING_OP_SEND, c->fd);
	s->msg_flags = MSG_DONTWAIT | MSG_WAITALL | MSG_NOSIGNAL;
	s->flags = IOSQE_CQE_SKIP_SUCCESS;
	if (c->first == c->last) {
		s->addr = (uintptr_t)piece_bytes(l, &l->pieces[c->first]);
		s->len = l->pieces[c->first].len;
		return;
	}
	struct msghdr *m = &l->messages[l->message_count++];
	*m = (struct msghdr){.msg_iov = &l->vectors[l->vector_count]};
	for (int i = c->first; i != no_piece; i = l->pieces[i].next, m->msg_iovlen++)
		l->vectors[l->vector_count++] =
			(struct iovec){.iov_base = (char *)piece_bytes(l, &l->pieces[i]), .iov_len = l->pieces[i].len};
	s->opcode = IORING_OP_SENDMSG;
	s->addr = (uintptr_t)m;
	s->len = 1;
}

static void pass(struct loop *l) {
	unsigned n = ring_drain(&l->ring, l->done, cq_entries);
	// Results of sends first: they need the pieces of the previous pass.
	for (unsigned i = 0; i < n; i++)
		if ((l->done[i].user_data & op_mask) == op_send_now)
			sent_now(l, (void *)(uintptr_t)(l->done[i].user_data & ~(uint64_t)op_mask), l->done[i].res);
	settle(l);
	unsigned ended = 0;
	for (unsigned i = 0; i < n; i++) {
		struct connection *c = (void *)(uintptr_t)(l->done[i].user_data & ~(uint64_t)op_mask);
		switch (l->done[i].user_data & op_mask) {
		case op_accept:
			accepted(l, &l->done[i]);
			break;
		case op_receive:
			received(l, c, &l->done[i]);
			if (c->ended) l->done[ended++].user_data = (uintptr_t)c; // overwrites what was handled
			break;
		case op_send_wait:
			if (!c->ended) sent_waiting(l, c, l->done[i].res);
			else l->done[ended++] = (struct io_uring_cqe){.user_data = (uintptr_t)c | op_send_wait, .res = l->done[i].res};
			break;
		}
	}
	for (int i = 0; i < l->dirty_count; i++) send_dirty(l, l->dirty[i]);
	for (unsigned i = 0; i < ended; i++) {
		struct connection *c = (void *)(uintptr_t)(l->done[i].user_data & ~(uint64_t)op_mask);
		if (l->done[i].user_data & op_mask)
			sent_waiting(l, c, l->done[i].res);
		else
			end_if_idle(c);
	}
	unsigned room = buffer_count / 4;
	while (l->starved_count && room--) arm_receive(l, l->starved[--l->starved_count]);
	ring_publish_buffers(&l->ring);
}

static void *run(void *arg) {
	struct loop *l = arg;
	ring_open(&l->ring);
	arm_accept(l);
	for (;;) {
		ring_enter(&l->ring, 1);
		pass(l);
	}
	return NULL;
}

int main(int argc, char **argv) {
	struct options o = parse_options(argc, argv);
	void *loops[max_loops];
	for (int i = 0; i < o.loops; i++) {
		struct loop *l = loops[i] = must_alloc(calloc(1, sizeof *l));
		l->options = &o;
		l->listener = open_listener(&o.address, 0);
	}
	run_loops(&o, run, loops);
}
