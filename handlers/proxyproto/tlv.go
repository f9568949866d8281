package proxyproto

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Type says what a TLV is about (section 2.2 of the specification). Any other value may come, too.
type Type uint8

const (
	TypeALPN      Type = 0x01 // the application protocol, "h2" for example
	TypeAuthority Type = 0x02 // the host name that the client asked for
	TypeCRC32C    Type = 0x03 // checked when parsed; computed, whatever its Value, when encoded
	TypeNoop      Type = 0x04 // to be ignored
	TypeUniqueID  Type = 0x05 // of the connection, up to 128 bytes
	TypeSSL       Type = 0x20 // see Header.SSL
	TypeNetNS     Type = 0x30 // the network namespace's name

	// Inside of an SSL TLV.
	TypeSSLVersion Type = 0x21 // "TLSv1.3" for example
	TypeSSLCN      Type = 0x22 // of the client's certificate
	TypeSSLCipher  Type = 0x23 // "ECDHE-RSA-AES128-GCM-SHA256" for example
	TypeSSLSigAlg  Type = 0x24 // of the certificate that the proxy showed
	TypeSSLKeyAlg  Type = 0x25 // of that certificate's key
)

// TLV is an extension of a version 2 header.
type TLV struct {
	Type  Type
	Value []byte
}

// SSL is what a proxy says about its client's TLS connection.
type SSL struct {
	Client uint8  // bits: 1 TLS, 2 a certificate on this connection, 4 a certificate in this session
	Verify uint32 // 0: the certificate was verified
	TLVs   []TLV
}

// TLV returns the value of the first TLV of that type.
func (s *SSL) TLV(t Type) (value []byte, ok bool) { return find(s.TLVs, t) }

const (
	tlvHeaderBytes = 3
	crcBytes       = 4
	sslHeaderBytes = 5
)

func find(tlvs []TLV, t Type) ([]byte, bool) {
	for i := range tlvs {
		if tlvs[i].Type == t {
			return tlvs[i].Value, true
		}
	}
	return nil, false
}

// parseTLVs returns the TLVs that fill in. Their values alias it.
func parseTLVs(in []byte) (tlvs []TLV, err error) {
	for rest := in; len(rest) > 0; {
		if len(rest) < tlvHeaderBytes {
			return nil, bad("%d bytes are no TLV", len(rest))
		}
		end := tlvHeaderBytes + int(binary.BigEndian.Uint16(rest[1:]))
		if end > len(rest) {
			return nil, bad("a TLV of %d bytes, %d are left", end, len(rest))
		}
		tlvs = append(tlvs, TLV{Type(rest[0]), rest[tlvHeaderBytes:end:end]})
		rest = rest[end:]
	}
	return tlvs, nil
}

func parseSSL(value []byte) (SSL, error) {
	if len(value) < sslHeaderBytes {
		return SSL{}, bad("an SSL TLV of %d bytes", len(value))
	}
	tlvs, err := parseTLVs(value[sslHeaderBytes:])
	if err != nil {
		return SSL{}, fmt.Errorf("in the SSL TLV: %w", err)
	}
	return SSL{Client: value[0], Verify: binary.BigEndian.Uint32(value[1:]), TLVs: tlvs}, nil
}

// verify checks the CRC32C in tlvs, where there is one. It is over the whole header, with zeros in its own place: head,
// the part before the TLVs, and tail, the bytes of the TLVs.
func verify(head, tail []byte, tlvs []TLV) error {
	at, end := -1, 0
	for i := range tlvs {
		t := &tlvs[i]
		end += tlvHeaderBytes + len(t.Value)
		if t.Type != TypeCRC32C {
			continue
		}
		if len(t.Value) != crcBytes || at >= 0 {
			return bad("a second checksum, or one of %d bytes", len(t.Value))
		}
		at = end - crcBytes
	}
	if at < 0 {
		return nil
	}
	want := binary.BigEndian.Uint32(tail[at:])
	if got := checksum(head, tail, at); got != want {
		return fmt.Errorf("%w: %08x instead of %08x", ErrChecksum, want, got)
	}
	return nil
}

// checksum is the CRC32C of head and tail with four zeros at offset at of tail.
func checksum(head, tail []byte, at int) uint32 {
	castagnoli := crc32.MakeTable(crc32.Castagnoli) // made once, by hash/crc32
	sum := crc32.Update(0, castagnoli, head)
	sum = crc32.Update(sum, castagnoli, tail[:at])
	sum = crc32.Update(sum, castagnoli, []byte{0, 0, 0, 0})
	return crc32.Update(sum, castagnoli, tail[at+crcBytes:])
}
