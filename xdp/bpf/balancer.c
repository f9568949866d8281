//go:build ignore

// A layer 4 load balancer with direct server return: a packet to a virtual address goes to one of its servers with another
// destination MAC, or inside another IP packet, and the server replies to the client itself.
#include "packet.h"
#include "stages.h"

#define RING_LINE 32  // cells in a line of the processor's cache
#define NOBODY 0xffff // the cell of an empty pool

// Constants that the loader sets.
volatile const __u8 own_mac[8]; // the interface's
volatile const __u32 ring_mask; // number of cells - 1
volatile const __u64 hash_seed;
volatile const __u64 insert_ns; // what an insertion costs of a second, on a processor; 0: there is none
volatile const __u64 insert_burst_ns;
volatile const __u32 link_mtu; // of the interface
volatile const __u32 tunnel_source4;
volatile const __u32 tunnel_source6[4];

// reason is why a packet met its fate. The limits between verdicts are FIRST_PASS and FIRST_DROP.
enum reason {
	REASON_KNOWN,      // sent: its connection is in the table
	REASON_PLACED,     // sent: the ring has chosen
	REASON_ICMP_ERROR, // sent: an error about what a server has sent

	REASON_NOT_OURS,   // passed: the frame is for another MAC
	REASON_NOT_IP,     // passed
	REASON_VLANS,      // passed: more than one tag
	REASON_PROTOCOL,   // passed: another transport
	REASON_NO_VIP,     // passed
	REASON_ICMP_OTHER, // passed: an echo request, neighbour discovery

	REASON_RUNT, // dropped from here on; see enum parsed
	REASON_VERSION,
	REASON_FRAGMENT,
	REASON_LENGTH,
	REASON_CUT,
	REASON_TTL,
	REASON_OPTIONS,
	REASON_QUOTE, // an ICMP error about a packet that can't be made out
	REASON_NO_SERVER,
	REASON_SERVER_DOWN,
	REASON_TOO_BIG,  // no room for the outer header
	REASON_HEADROOM, // none in front of the frame
	REASONS,
};
#define FIRST_PASS REASON_NOT_OURS
#define FIRST_DROP REASON_RUNT

struct vip_key {
	union address address;
	__u16 port; // network order; 0: any
	__u8 proto; // 0, with port 0: the address is a VIP's
	__u8 pad[5];
};

struct vip {
	__u32 slot; // in rings and vip_counters
};

struct {
	__uint(type, MAP_HASH);
	__uint(max_entries, 64);
	__type(key, struct vip_key);
	__type(value, struct vip);
} vips SEC(".maps");

struct ring_line {
	__u16 cell[RING_LINE]; // numbers of servers
};

// The inner map has a definition of its own, so that its types are known when the outer one is read.
struct ring {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 65536 / RING_LINE);
	__type(key, __u32);
	__type(value, struct ring_line);
} ring SEC(".maps");

struct {
	__uint(type, MAP_ARRAY_OF_MAPS);
	__uint(max_entries, 64);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

// A link is what is asked for each packet, in a word that is written at once: the bytes of the MAC to send to, and bits.
#define LINK_UP (1ULL << 48)
#define LINK_TUNNEL (1ULL << 49)
#define LINK_GENERATION(link) ((__u16)((link) >> 50)) // who has the number: servers come and go

struct {
	__uint(type, MAP_ARRAY);
	__uint(map_flags, MAP_MMAPABLE);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} links SEC(".maps");

// server is the rest about one. The program needs the address, for tunnels; the loader remembers who has the number.
struct server {
	union address address;
	__u32 vip; // its slot
	__u16 weight;
	__u16 generation;
	__u8 state; // 0: nobody has the number
	__u8 tunnel;
	__u8 healthy;
	__u8 pad[5];
};

struct {
	__uint(type, MAP_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct server);
} servers SEC(".maps");

struct flow_key {
	union address client;
	union address vip;
	struct ports ports;
	__u32 proto;
};

struct flow {
	__u16 server;
	__u16 generation;
};

struct {
	__uint(type, MAP_LRU_HASH);
	__uint(map_flags, MAP_NO_COMMON_LRU); // each processor evicts its own
	__uint(max_entries, 262144);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

// SYNs have a budget of their own, so that a flood of them leaves room for the connections that are established.
enum budget {
	BUDGET_SYN,
	BUDGET_OTHER,
	BUDGETS,
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, BUDGETS);
	__type(key, __u32);
	__type(value, __u64); // the time up to which it is spent
} budgets SEC(".maps");

struct counters {
	__u64 packets;
	__u64 bytes;  // of IP
	__u64 placed; // packets for which the ring has chosen
};

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, struct counters);
} vip_counters SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct counters);
} server_counters SEC(".maps");

struct {
	__uint(type, MAP_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, enum reason);
	__type(value, __u64);
} reasons SEC(".maps");

// choice is where a packet goes.
struct choice {
	__u32 server;
	__u64 link;
};

INLINE __u32 hash_of(const struct flow_key *key)
{
	const __u64 *word = (const void *)key;
	__u64 h = hash_seed;
#pragma unroll
	for (int i = 0; i < sizeof(*key) / sizeof(*word); i++) {
		h = (h ^ word[i]) * 0x9e3779b97f4a7c15;
		h ^= h >> 32;
	}
	return (h * 0xbf58476d1ce4e5b9) >> 32;
}

INLINE const struct vip *vip_at(const union address *address, __u16 port, __u8 proto)
{
	struct vip_key key = {.address = *address, .port = port, .proto = proto};
	return map_lookup(&vips, &key);
}

// find_vip prefers the one of the port to the one of all ports.
INLINE const struct vip *find_vip(const union address *address, __u16 port, __u8 proto)
{
	const struct vip *vip = vip_at(address, port, proto);
	return vip || port == 0 ? vip : vip_at(address, 0, proto);
}

INLINE void add(void *counters, __u32 key, __u64 bytes, int placed)
{
	struct counters *c = map_lookup(counters, &key);
	if (c) {
		c->packets++;
		c->bytes += bytes;
		c->placed += placed;
	}
}

INLINE __u64 link_of(__u32 server)
{
	const __u64 *link = map_lookup(&links, &server);
	return link ? *(const volatile __u64 *)link : 0;
}

// within reports whether an insertion fits into a processor's budget, and takes it out (the virtual scheduling algorithm
// of ITU-T I.371).
INLINE int within(__u32 budget)
{
	__u64 *spent = map_lookup(&budgets, &budget);
	if (!spent || !insert_ns)
		return 0;
	__u64 now = ktime_coarse_ns(), from = *spent;
	if (from + insert_burst_ns < now)
		from = now - insert_burst_ns;
	if (from > now)
		return 0;
	*spent = from + insert_ns;
	return 1;
}

// by_ring chooses a server for what the table does not know.
INLINE enum reason by_ring(const struct flow_key *key, __u32 slot, struct choice *choice)
{
	__u32 cell = hash_of(key) & ring_mask, line = cell / RING_LINE;
	void *table = map_lookup(&rings, &slot);
	if (!table)
		return REASON_NO_SERVER;
	const struct ring_line *cells = map_lookup(table, &line);
	if (!cells)
		return REASON_NO_SERVER;
	choice->server = cells->cell[cell % RING_LINE];
	if (choice->server == NOBODY)
		return REASON_NO_SERVER;
	choice->link = link_of(choice->server);
	return choice->link & LINK_UP ? REASON_PLACED : REASON_SERVER_DOWN;
}

// choose finds a connection's server. A SYN begins a new one, whatever the table has: it may be a draining server's.
INLINE enum reason choose(const struct flow_key *key, __u32 slot, int syn, int insert, struct choice *choice)
{
	if (!syn && insert_ns) {
		const struct flow *flow = map_lookup(&flows, key);
		if (flow) {
			choice->server = flow->server;
			choice->link = link_of(flow->server);
			if (choice->link & LINK_UP && LINK_GENERATION(choice->link) == flow->generation)
				return REASON_KNOWN;
		}
	}
	enum reason reason = by_ring(key, slot, choice);
	if (reason == REASON_PLACED && insert && within(syn ? BUDGET_SYN : BUDGET_OTHER)) {
		struct flow flow = {choice->server, LINK_GENERATION(choice->link)};
		map_update(&flows, key, &flow, UPDATE_ANY); // a failure leaves the connection to the ring
	}
	return reason;
}

INLINE void set_macs(struct eth *eth, __u64 link)
{
	__builtin_memcpy(eth->dst, &link, sizeof(eth->dst));
#pragma unroll
	for (int i = 0; i < 6; i++)
		eth->src[i] = own_mac[i];
}

// outer4 writes the header of a packet that carries another one (RFC 2003). It is never fragmented, so it needs no
// identification (RFC 6864).
INLINE void outer4(struct ip4 *ip, const struct packet *p, const struct server *server)
{
	ip->version_ihl = 0x45;
	ip->tos = p->tos;
	ip->length = htons((__u16)(p->ip_bytes + sizeof(*ip)));
	ip->id = 0;
	ip->fragment = htons(0x4000); // do not fragment
	ip->ttl = 64;
	ip->proto = p->family == 4 ? PROTO_IPIP : PROTO_IP6;
	ip->checksum = 0;
	ip->src = tunnel_source4;
	ip->dst = server->address.word[3];
	__u32 sum = 0;
	const __u16 *word = (const void *)ip;
#pragma unroll
	for (int i = 0; i < sizeof(*ip) / sizeof(*word); i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	ip->checksum = ~sum;
}

// outer6 does it in IPv6 (RFC 2473).
INLINE void outer6(struct ip6 *ip, const struct packet *p, const struct server *server)
{
	ip->version_class_flow = htonl(6u << 28 | (__u32)p->tos << 20);
	ip->length = htons((__u16)p->ip_bytes);
	ip->next = p->family == 4 ? PROTO_IPIP : PROTO_IP6;
	ip->hops = 64;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		ip->src[i] = tunnel_source6[i];
		ip->dst[i] = server->address.word[i];
	}
}

// encapsulate puts the packet into one to the server.
INLINE enum reason encapsulate(struct xdp_md *ctx, const struct packet *p, const struct choice *choice, enum reason sent)
{
	__u32 number = choice->server;
	const struct server *server = map_lookup(&servers, &number);
	if (!server)
		return REASON_SERVER_DOWN;
	int four = server->address.half[0] == 0 && server->address.word[2] == htonl(0xffff);
	__u32 more = four ? sizeof(struct ip4) : sizeof(struct ip6);
	if (p->ip_bytes + more > link_mtu || xdp_buff_len(ctx) - p->ip + more > link_mtu)
		return REASON_TOO_BIG;
	struct view v = view_of(ctx);
	const struct vlan *was = at(&v, sizeof(struct eth), sizeof(*was));
	const struct eth *old = at(&v, 0, sizeof(*old));
	if (!was || !old)
		return REASON_CUT;
	int tagged = p->ip > sizeof(*old);
	__u16 tag = was->tag, tag_type = old->type, type = four ? ETHERTYPE_IP4 : ETHERTYPE_IP6;
	if (xdp_adjust_head(ctx, -(int)more))
		return REASON_HEADROOM;
	v = view_of(ctx);
	struct eth *eth = at(&v, 0, sizeof(*eth) + sizeof(struct vlan) + sizeof(struct ip6));
	if (!eth)
		return REASON_CUT; // an inner header is longer than that
	set_macs(eth, choice->link);
	void *ip = eth + 1;
	if (tagged) {
		struct vlan *vlan = ip;
		eth->type = tag_type;
		vlan->tag = tag;
		vlan->type = type;
		ip = vlan + 1;
	} else {
		eth->type = type;
	}
	if (four)
		outer4(ip, p, server);
	else
		outer6(ip, p, server);
	return sent;
}

// send gives a packet to the server that was chosen and counts it.
INLINE enum reason send(struct xdp_md *ctx, const struct packet *p, __u32 slot, const struct choice *choice, enum reason sent)
{
	int placed = sent == REASON_PLACED;
	if (choice->link & LINK_TUNNEL) {
		enum reason reason = encapsulate(ctx, p, choice, sent);
		if (reason >= FIRST_PASS)
			return reason;
	} else {
		struct view v = view_of(ctx);
		struct eth *eth = at(&v, 0, sizeof(*eth));
		if (!eth)
			return REASON_RUNT;
		set_macs(eth, choice->link);
	}
	add(&vip_counters, slot, p->ip_bytes, placed);
	add(&server_counters, choice->server, p->ip_bytes, placed);
	return sent;
}

// icmp sends an error to the server that has sent what it is about: path MTU discovery depends on it. The kernel of the
// balancer does the rest, it has the address.
INLINE enum reason icmp(struct xdp_md *ctx, const struct view *v, const struct packet *p)
{
	int error = p->family == 4 ? p->flags == 3 || p->flags == 11 || p->flags == 12 : p->flags >= 1 && p->flags <= 4;
	if (!error)
		return REASON_ICMP_OTHER;
	struct packet inner;
	enum parsed parsed = parse_quoted(v, p, &inner);
	if (parsed != PARSED_OK || inner.src.half[0] != p->dst.half[0] || inner.src.half[1] != p->dst.half[1])
		return vip_at(&p->dst, 0, 0) ? REASON_QUOTE : REASON_NO_VIP;
	const struct vip *vip = find_vip(&inner.src, inner.sport, inner.proto);
	if (!vip)
		return REASON_NO_VIP;
	struct flow_key key = {inner.dst, inner.src, {inner.dport, inner.sport}, inner.proto};
	struct choice choice = {};
	__u32 slot = vip->slot;
	enum reason reason = choose(&key, slot, 0, 0, &choice);
	return reason >= FIRST_PASS ? reason : send(ctx, p, slot, &choice, REASON_ICMP_ERROR);
}

// transport sends a packet of TCP or UDP.
INLINE enum reason transport(struct xdp_md *ctx, const struct packet *p)
{
	const struct vip *vip = find_vip(&p->dst, p->dport, p->proto);
	if (!vip)
		return REASON_NO_VIP;
	struct flow_key key = {p->src, p->dst, {p->sport, p->dport}, p->proto};
	struct choice choice = {};
	__u32 slot = vip->slot;
	int syn = p->proto == PROTO_TCP && (p->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	int insert = syn || !(p->proto == PROTO_TCP && p->flags & (TCP_FIN | TCP_RST));
	enum reason reason = choose(&key, slot, syn, insert, &choice);
	return reason >= FIRST_PASS ? reason : send(ctx, p, slot, &choice, reason);
}

// refused is what becomes of a packet that could not be parsed: dropped where it is for a VIP, else the kernel's.
INLINE enum reason refused(enum parsed parsed, const struct packet *p)
{
	enum reason reason;
	switch (parsed) {
	case PARSED_RUNT: return REASON_RUNT;
	case PARSED_NOT_IP: return REASON_NOT_IP;
	case PARSED_VLANS: return REASON_VLANS;
	case PARSED_VERSION: return REASON_VERSION;
	case PARSED_PROTOCOL: return REASON_PROTOCOL;
	case PARSED_FRAGMENT: reason = REASON_FRAGMENT; break;
	case PARSED_LENGTH: reason = REASON_LENGTH; break;
	case PARSED_TTL: reason = REASON_TTL; break;
	case PARSED_OPTIONS: reason = REASON_OPTIONS; break;
	default: reason = REASON_CUT;
	}
	return vip_at(&p->dst, 0, 0) ? reason : REASON_NO_VIP;
}

INLINE enum reason decide(struct xdp_md *ctx)
{
	struct view v = view_of(ctx);
	struct packet p;
	const struct eth *eth = at(&v, 0, sizeof(*eth));
	if (!eth)
		return REASON_RUNT;
#pragma unroll
	for (int i = 0; i < 6; i++) // what a switch floods may be what another balancer has sent
		if (eth->dst[i] != own_mac[i])
			return REASON_NOT_OURS;
	enum parsed parsed = parse(&v, &p);
	if (UNLIKELY(parsed != PARSED_OK))
		return refused(parsed, &p);
	if (p.proto == PROTO_ICMP || p.proto == PROTO_ICMP6)
		return icmp(ctx, &v, &p);
	return transport(ctx, &p);
}

SEC("xdp.frags")
int balance(struct xdp_md *ctx)
{
	enum reason reason = decide(ctx);
	__u64 *count = map_lookup(&reasons, &reason);
	if (count)
		++*count;
	return reason < FIRST_PASS ? XDP_TX : reason < FIRST_DROP ? next_stage(ctx, STAGE_BALANCER + 1) : XDP_DROP;
}

char license_text[] SEC("license") = "Apache-2.0";
