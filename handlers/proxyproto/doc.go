// Package proxyproto speaks the PROXY protocol, versions 1 and 2 (doc/proxy-protocol.txt of HAProxy): the few bytes
// with which a proxy tells at the beginning of a connection for whom it is.
//
// A Decoder stands first in the pipeline of accepted connections. It believes the peers that its configuration trusts,
// and only them: whoever may send a header may claim to be anybody. It takes the header, fires it as an event
// (*Header), takes itself out and passes on what came behind, in order. Context.RemoteAddr stays the proxy's address.
// An Encoder writes the header of an outgoing connection before anything else.
//
// Parse and Header.AppendTo are the format alone, on plain bytes:
//
//   - Version 1 is read strictly: single spaces, no leading zeros in ports, addresses of the family that is named, at
//     most 107 bytes. A stream that cannot become a header fails at the first byte that tells.
//   - Version 2 is bounded by a configured length, judged before the body is awaited. TLVs have to fill the rest of the
//     header exactly; the CRC32C, where there is one, has to be right (section 2.2.4).
//   - A LOCAL connection is the proxy's own, whatever family it names, and an unspecified family tells nothing. Both
//     are accepted, and what their bodies hold is skipped, TLVs included (section 2.2).
package proxyproto
