// The bare server on epoll: level triggered, one receive per event into one hot buffer, the answer sent at once.
#define _GNU_SOURCE
#include "../c-common/common.h"

#include <sys/epoll.h>

enum { events_at_once = 256, receive_bytes = 64 << 10 };

struct connection {
	int fd;
	struct bytes unsent; // what the kernel did not take; nothing is read while there is any
	struct bytes rest;   // the beginning of a frame
};

struct loop {
	const struct options *options;
	int listener, epoll;
	char in[receive_bytes];
	struct bytes out;
};

static void interest(struct loop *l, struct connection *c, int operation, uint32_t events) {
	struct epoll_event e = {.events = events, .data.ptr = c};
	if (epoll_ctl(l->epoll, operation, c ? c->fd : l->listener, &e)) die("epoll_ctl");
}

static void end_connection(struct connection *c) {
	close(c->fd);
	bytes_free(&c->unsent);
	bytes_free(&c->rest);
	free(c);
}

static void accept_all(struct loop *l) {
	for (;;) {
		int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EAGAIN) return;
			if (errno == EINTR || errno == ECONNABORTED) continue;
			die("accept");
		}
		struct connection *c = must_alloc(calloc(1, sizeof *c));
		c->fd = fd;
		interest(l, c, EPOLL_CTL_ADD, EPOLLIN);
	}
}

// send_or_keep returns 0 when the connection has failed.
static int send_or_keep(struct loop *l, struct connection *c, const char *p, size_t n) {
	ssize_t sent = send(c->fd, p, n, MSG_NOSIGNAL);
	if (sent < 0) {
		if (errno != EAGAIN) return 0;
		sent = 0;
	}
	if ((size_t)sent < n) {
		bytes_append(&c->unsent, p + sent, n - sent);
		interest(l, c, EPOLL_CTL_MOD, EPOLLOUT);
	}
	return 1;
}

static int flush(struct loop *l, struct connection *c) {
	ssize_t sent = send(c->fd, c->unsent.at, c->unsent.len, MSG_NOSIGNAL);
	if (sent < 0) return errno == EAGAIN;
	bytes_consume(&c->unsent, sent);
	if (!c->unsent.len) {
		bytes_free(&c->unsent);
		interest(l, c, EPOLL_CTL_MOD, EPOLLIN);
	}
	return 1;
}

static int receive(struct loop *l, struct connection *c) {
	ssize_t n = recv(c->fd, l->in, sizeof l->in, 0);
	if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
	if (!l->options->frames) return send_or_keep(l, c, l->in, n);
	l->out.len = 0;
	if (replies_of(&l->out, &c->rest, l->in, n)) return 0;
	return !l->out.len || send_or_keep(l, c, l->out.at, l->out.len);
}

static void *run(void *arg) {
	struct loop *l = arg;
	struct epoll_event events[events_at_once];
	for (;;) {
		int n = epoll_wait(l->epoll, events, events_at_once, -1);
		if (n < 0 && errno != EINTR) die("epoll_wait");
		for (int i = 0; i < n; i++) {
			struct connection *c = events[i].data.ptr;
			if (!c)
				accept_all(l);
			else if (!(c->unsent.len ? flush(l, c) : receive(l, c)))
				end_connection(c);
		}
	}
	return NULL;
}

int main(int argc, char **argv) {
	struct options o = parse_options(argc, argv);
	void *loops[max_loops];
	for (int i = 0; i < o.loops; i++) {
		struct loop *l = loops[i] = must_alloc(calloc(1, sizeof *l));
		l->options = &o;
		l->listener = open_listener(&o.address, SOCK_NONBLOCK);
		if ((l->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0) die("epoll_create1");
		interest(l, NULL, EPOLL_CTL_ADD, EPOLLIN);
	}
	run_loops(&o, run, loops);
}
