// What the two bare servers in C have in common: flags, listening, framing, the end. They answer one question: what does
// this machine allow? So they check no more than their own safety needs, and a failing system call at start ends them.
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { header_bytes = 4, max_payload_bytes = 1 << 20, max_loops = 64 };

struct options {
	struct sockaddr_in address;
	int frames; // framed echo instead of raw echo
	int loops;
};

static inline void die(const char *what) {
	perror(what);
	exit(1);
}

static inline void *must_alloc(void *p) {
	if (!p) die("memory");
	return p;
}

// parse_options understands the flags of the Go servers.
static inline struct options parse_options(int argc, char **argv) {
	struct options o = {.loops = 1};
	o.address.sin_family = AF_INET;
	o.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 1; i + 1 < argc; i += 2) {
		const char *flag = argv[i], *value = argv[i + 1];
		if (!strcmp(flag, "-addr")) {
			char host[64];
			const char *colon = strrchr(value, ':');
			if (!colon || colon - value >= (long)sizeof host) die("-addr");
			memcpy(host, value, colon - value);
			host[colon - value] = 0;
			if (inet_pton(AF_INET, host, &o.address.sin_addr) != 1) die("-addr");
			o.address.sin_port = htons(atoi(colon + 1));
		} else if (!strcmp(flag, "-mode")) {
			o.frames = !strcmp(value, "frames");
			if (!o.frames && strcmp(value, "echo")) {
				fprintf(stderr, "no mode %s here\n", value);
				exit(1);
			}
		} else if (!strcmp(flag, "-loops")) {
			o.loops = atoi(value);
			if (o.loops < 1 || o.loops > max_loops) die("-loops");
		} else {
			fprintf(stderr, "unknown flag %s\n", flag);
			exit(1);
		}
	}
	return o;
}

// open_listener binds to the address and writes the port that it got into it, so that the next one shares the port.
static inline int open_listener(struct sockaddr_in *address, int flags) {
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), on = 1;
	if (fd < 0) die("socket");
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on))
		die("SO_REUSEPORT");
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)) die("TCP_NODELAY"); // accepted sockets inherit it
	if (bind(fd, (struct sockaddr *)address, sizeof *address) || listen(fd, 4096)) die("listen");
	socklen_t n = sizeof *address;
	if (getsockname(fd, (struct sockaddr *)address, &n)) die("getsockname");
	return fd;
}

// run_loops starts a thread for each loop, tells the address and ends the process with its standard input.
static inline void run_loops(struct options *o, void *(*run)(void *loop), void *loops[]) {
	for (int i = 0; i < o->loops; i++) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, run, loops[i])) die("pthread_create");
		pthread_detach(thread);
	}
	char host[INET_ADDRSTRLEN];
	inet_ntop(AF_INET, &o->address.sin_addr, host, sizeof host);
	printf("listening %s:%d\n", host, ntohs(o->address.sin_port));
	fflush(stdout);
	char ignored[64];
	while (read(STDIN_FILENO, ignored, sizeof ignored) > 0) {
	}
	exit(0);
}

// bytes is a growing array.
struct bytes {
	char *at;
	size_t len, cap;
};

static inline void bytes_reserve(struct bytes *b, size_t n) {
	if (b->cap - b->len >= n) return;
	size_t cap = b->cap ? b->cap : 4096;
	while (cap - b->len < n) cap *= 2;
	b->at = must_alloc(realloc(b->at, cap));
	b->cap = cap;
}

static inline void bytes_append(struct bytes *b, const void *p, size_t n) {
	bytes_reserve(b, n);
	memcpy(b->at + b->len, p, n);
	b->len += n;
}

static inline void bytes_consume(struct bytes *b, size_t n) {
	memmove(b->at, b->at + n, b->len - n);
	b->len -= n;
}

static inline void bytes_free(struct bytes *b) {
	free(b->at);
	*b = (struct bytes){0};
}

// append_replies decodes the whole frames at the front of in, appends a frame with the same payload to out for each, and
// returns how many bytes of in it took, or -1 for a frame that is too long.
static inline long append_replies(struct bytes *out, const char *in, size_t len) {
	size_t taken = 0;
	while (len - taken >= header_bytes) {
		uint32_t field;
		memcpy(&field, in + taken, header_bytes);
		size_t n = ntohl(field);
		if (n > max_payload_bytes) return -1;
		if (len - taken - header_bytes < n) break;
		bytes_reserve(out, header_bytes + n);
		field = htonl(n);
		memcpy(out->at + out->len, &field, header_bytes);
		memcpy(out->at + out->len + header_bytes, in + taken + header_bytes, n);
		out->len += header_bytes + n;
		taken += header_bytes + n;
	}
	return taken;
}

// replies_of is append_replies for input that may continue the beginning of a frame kept in rest.
static inline int replies_of(struct bytes *out, struct bytes *rest, const char *in, size_t len) {
	if (rest->len) {
		bytes_append(rest, in, len);
		in = rest->at;
		len = rest->len;
	}
	long taken = append_replies(out, in, len);
	if (taken < 0) return -1;
	if (in == rest->at && rest->len) {
		bytes_consume(rest, taken);
		if (!rest->len) bytes_free(rest);
	} else if ((size_t)taken < len) {
		bytes_append(rest, in + taken, len - taken);
	}
	return 0;
}
