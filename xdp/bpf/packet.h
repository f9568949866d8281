// Parsing of a frame up to its ports: Ethernet, one VLAN tag (IEEE 802.1Q), IPv4 (RFC 791), IPv6 with extension headers
// (RFC 8200), TCP, UDP, ICMP and ICMPv6. Every read is checked against the end of the frame's first buffer, in which the
// headers have to be.
#ifndef WEIR_PACKET_H
#define WEIR_PACKET_H

#include "kernel.h"

#define ETHERTYPE_IP4 htons(0x0800)
#define ETHERTYPE_IP6 htons(0x86dd)
#define ETHERTYPE_VLAN htons(0x8100)
#define ETHERTYPE_SVLAN htons(0x88a8)

#define PROTO_HOP_BY_HOP 0
#define PROTO_ICMP 1
#define PROTO_IPIP 4
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_IP6 41
#define PROTO_ROUTING 43
#define PROTO_FRAGMENT 44
#define PROTO_AH 51
#define PROTO_ICMP6 58
#define PROTO_DEST_OPTIONS 60

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define EXTENSIONS_MAX 4    // IPv6 extension headers that are looked through
#define EXTENSIONS_QUOTED 1 // in what an ICMP error quotes; each multiplies what the verifier has to follow

struct eth {
	__u8 dst[6];
	__u8 src[6];
	__u16 type;
} __attribute__((packed));

struct vlan {
	__u16 tag;
	__u16 type;
};

struct ip4 {
	__u8 version_ihl;
	__u8 tos;
	__u16 length;
	__u16 id;
	__u16 fragment;
	__u8 ttl;
	__u8 proto;
	__u16 checksum;
	__u32 src;
	__u32 dst;
};

struct ip6 {
	__u32 version_class_flow;
	__u16 length;
	__u8 next;
	__u8 hops;
	__u32 src[4];
	__u32 dst[4];
};

struct ports {
	__u16 src;
	__u16 dst;
};

struct tcp {
	__u16 src;
	__u16 dst;
	__u32 seq;
	__u32 ack;
	__u8 offset;
	__u8 flags;
	__u16 window;
	__u16 checksum;
	__u16 urgent;
};

struct udp {
	__u16 src;
	__u16 dst;
	__u16 length;
	__u16 checksum;
};

struct icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 rest;
};

// address is an IPv6 address in network order, or an IPv4 address as ::ffff:a.b.c.d (RFC 4291, 2.5.5.2).
union address {
	__u32 word[4];
	__u64 half[2];
};

// packet is what parse has found. Offsets are from the frame's first byte, numbers without a note in host order.
struct packet {
	union address src;
	union address dst;
	__u16 sport;    // network order; 0 without ports
	__u16 dport;    // network order; 0 without ports
	__u16 ip;       // offset of the IP header; 0: there is none
	__u16 l4;       // offset of the transport header
	__u32 ip_bytes; // length of the IP packet with its header, as that says: at most 65575
	__u8 family;    // 4, 6; 0: src and dst could not be read
	__u8 proto;     // of the transport: behind the extension headers
	__u8 flags;     // of TCP; type of ICMP
	__u8 tos;       // or traffic class
};

// parsed says how far parse came. From PARSED_FRAGMENT on, src and dst are set.
enum parsed {
	PARSED_OK,       // with ports, or ICMP's header
	PARSED_RUNT,     // ends in front of the addresses
	PARSED_NOT_IP,   // another ethertype
	PARSED_VLANS,    // more than one VLAN tag
	PARSED_VERSION,  // the version is not the ethertype's, or an IPv4 header of fewer than 20 bytes
	PARSED_FRAGMENT, // a fragment, the first included
	PARSED_LENGTH,   // the length of the packet leaves no room for its headers
	PARSED_CUT,      // ends in front of, or in, the transport's header
	PARSED_TTL,      // its time to live is over
	PARSED_OPTIONS,  // more than EXTENSIONS_MAX extension headers
	PARSED_PROTOCOL, // neither TCP, UDP nor ICMP of this version of IP
};

// view is the first buffer of a frame.
struct view {
	void *data;
	void *end;
};

INLINE struct view view_of(struct xdp_md *ctx)
{
	struct view v = {(void *)(long)ctx->data, (void *)(long)ctx->data_end};
	return v;
}

// at returns where size bytes from an offset on are, or 0 where the buffer ends before. The offset has to be bounded.
INLINE void *at(const struct view *v, __u32 offset, __u32 size)
{
	void *p = v->data + offset;
	return p + size <= v->end ? p : 0;
}

INLINE void mapped(union address *a, __u32 ip4)
{
	a->word[0] = 0;
	a->word[1] = 0;
	a->word[2] = htonl(0xffff);
	a->word[3] = ip4;
}

// parse_l4 reads the ports. room is what the IP header leaves for the transport; a quoted packet (in an ICMP error) is
// cut behind the first 8 bytes of it and its length is not what is there.
INLINE enum parsed parse_l4(const struct view *v, struct packet *p, int room, int quoted)
{
	if (p->proto == PROTO_TCP && !quoted) {
		const struct tcp *tcp = at(v, p->l4, sizeof(*tcp));
		if (room < (int)sizeof(*tcp))
			return PARSED_LENGTH;
		if (!tcp)
			return PARSED_CUT;
		p->sport = tcp->src;
		p->dport = tcp->dst;
		p->flags = tcp->flags;
		return PARSED_OK;
	}
	if (p->proto == PROTO_TCP || p->proto == PROTO_UDP) {
		const struct udp *udp = at(v, p->l4, sizeof(*udp));
		if (room < (int)sizeof(*udp))
			return PARSED_LENGTH;
		if (!udp)
			return PARSED_CUT;
		p->sport = udp->src;
		p->dport = udp->dst;
		return PARSED_OK;
	}
	if (p->proto == (p->family == 4 ? PROTO_ICMP : PROTO_ICMP6)) {
		const struct icmp *icmp = at(v, p->l4, sizeof(*icmp));
		if (room < (int)sizeof(*icmp))
			return PARSED_LENGTH;
		if (!icmp)
			return PARSED_CUT;
		p->flags = icmp->type;
		return PARSED_OK;
	}
	return PARSED_PROTOCOL;
}

// parse_ip4 reads the IPv4 packet at p->ip.
INLINE enum parsed parse_ip4(const struct view *v, struct packet *p, int quoted)
{
	const struct ip4 *ip = at(v, p->ip, sizeof(*ip));
	if (!ip)
		return PARSED_RUNT;
	__u32 header = (ip->version_ihl & 15) * 4;
	if (ip->version_ihl >> 4 != 4 || header < sizeof(*ip))
		return PARSED_VERSION;
	p->family = 4;
	mapped(&p->src, ip->src);
	mapped(&p->dst, ip->dst);
	p->proto = ip->proto;
	p->tos = ip->tos;
	p->ip_bytes = ntohs(ip->length);
	p->l4 = p->ip + header;
	if (ip->fragment & htons(0x3fff)) // more to come, or an offset; a quoted first fragment has ports, but is rare
		return PARSED_FRAGMENT;
	if (ip->ttl == 0 && !quoted)
		return PARSED_TTL;
	return parse_l4(v, p, (int)p->ip_bytes - (int)header, quoted);
}

// parse_ip6 reads the IPv6 packet at p->ip and looks through its extension headers. A fragment that is the whole packet
// is none (RFC 6946).
INLINE enum parsed parse_ip6(const struct view *v, struct packet *p, int quoted)
{
	const struct ip6 *ip = at(v, p->ip, sizeof(*ip));
	if (!ip)
		return PARSED_RUNT;
	__u32 head = htonl(ip->version_class_flow);
	if (head >> 28 != 6)
		return PARSED_VERSION;
	p->family = 6;
	__builtin_memcpy(&p->src, ip->src, sizeof(p->src));
	__builtin_memcpy(&p->dst, ip->dst, sizeof(p->dst));
	p->tos = head >> 20;
	__u32 payload = ntohs(ip->length), next = ip->next, skipped = 0;
	p->ip_bytes = payload + sizeof(*ip); // a jumbogram's payload is 0: it has no room
	if (ip->hops == 0 && !quoted)
		return PARSED_TTL;
#pragma unroll
	for (int i = 0; i < (quoted ? EXTENSIONS_QUOTED : EXTENSIONS_MAX); i++) {
		__u32 size;
		if (next != PROTO_HOP_BY_HOP && next != PROTO_ROUTING && next != PROTO_DEST_OPTIONS && next != PROTO_AH &&
			next != PROTO_FRAGMENT)
			break;
		const __u8 *extension = at(v, p->ip + sizeof(*ip) + skipped, 8);
		if (!extension)
			return PARSED_CUT;
		if (next == PROTO_FRAGMENT) {
			if (extension[2] || extension[3] & 0xf9)
				return PARSED_FRAGMENT;
			size = 8;
		} else if (next == PROTO_AH) {
			size = (extension[1] + 2) * 4;
		} else {
			size = (extension[1] + 1) * 8;
		}
		next = extension[0];
		skipped += size;
	}
	p->proto = next;
	p->l4 = p->ip + sizeof(*ip) + skipped;
	if (next == PROTO_HOP_BY_HOP || next == PROTO_ROUTING || next == PROTO_DEST_OPTIONS || next == PROTO_AH ||
		next == PROTO_FRAGMENT)
		return PARSED_OPTIONS;
	return parse_l4(v, p, (int)payload - (int)skipped, quoted);
}

// parse reads a frame. What it does not set in p is 0.
INLINE enum parsed parse(const struct view *v, struct packet *p)
{
	__builtin_memset(p, 0, sizeof(*p));
	const struct eth *eth = at(v, 0, sizeof(*eth));
	if (!eth)
		return PARSED_RUNT;
	__u16 type = eth->type;
	p->ip = sizeof(*eth);
	if (type == ETHERTYPE_VLAN || type == ETHERTYPE_SVLAN) {
		const struct vlan *vlan = at(v, sizeof(*eth), sizeof(*vlan));
		if (!vlan)
			return PARSED_RUNT;
		type = vlan->type;
		p->ip += sizeof(*vlan);
		if (type == ETHERTYPE_VLAN || type == ETHERTYPE_SVLAN)
			return PARSED_VLANS;
	}
	if (type == ETHERTYPE_IP4)
		return parse_ip4(v, p, 0);
	if (type == ETHERTYPE_IP6)
		return parse_ip6(v, p, 0);
	p->ip = 0;
	return PARSED_NOT_IP;
}

// parse_quoted reads the packet that an ICMP error at p quotes: the beginning of one that was sent from here.
INLINE enum parsed parse_quoted(const struct view *v, const struct packet *p, struct packet *inner)
{
	__builtin_memset(inner, 0, sizeof(*inner));
	inner->ip = p->l4 + sizeof(struct icmp);
	return p->family == 4 ? parse_ip4(v, inner, 1) : parse_ip6(v, inner, 1);
}

#endif
