package proxyproto_test

import (
	"bufio"
	"bytes"
	"net"
	"net/netip"
	"testing"

	other "github.com/pires/go-proxyproto"
	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/handlers/proxyproto"
)

// differential compares what Parse made of in with what go-proxyproto makes of it. It allows the differences that are
// meant: we check TLVs and their checksum, are stricter about lines and families, and bound the body at 4096 bytes; it
// refuses an unspecified family that is not LOCAL.
func differential(t testing.TB, in []byte, h *proxyproto.Header, n int, err error) {
	r := bufio.NewReaderSize(bytes.NewReader(in), 1<<17)
	theirs, theirErr := other.Read(r)
	if err != nil || theirErr != nil {
		if err == nil && h.Protocol != proxyproto.Unspecified {
			t.Errorf("%q: only we accept it: %v", in, theirErr)
		}
		return
	}
	assert.Equal(t, h.Version, int(theirs.Version))
	assert.Equal(t, len(in)-n, r.Buffered(), "%q: what is behind the header", in)
	if h.Version == 2 {
		assert.Equal(t, h.Local, theirs.Command.IsLocal(), "%q", in)
	}
	if h.Protocol == proxyproto.Unspecified {
		return
	}
	assert.Equal(t, byte(h.Protocol), byte(theirs.TransportProtocol), "%q", in)
	if from, to, ok := theirs.UnixAddrs(); ok {
		assert.True(t, from.Name == h.SourcePath ||
			from.Name == "" || from.Name[0] == '@' || from.Name[0] == 0, "%q", in)
		assert.True(t, to.Name == h.DestinationPath || to.Name == "" || to.Name[0] == '@' || to.Name[0] == 0, "%q", in)
	} else {
		assert.Equal(t, unmap(h.Source), addrPort(theirs.SourceAddr), "%q", in)
		assert.Equal(t, unmap(h.Destination), addrPort(theirs.DestinationAddr), "%q", in)
	}
	tlvs, err := theirs.TLVs()
	assert.NoError(t, err)
	if assert.Len(t, tlvs, len(h.TLVs)) {
		for i := range tlvs {
			assert.Equal(t, byte(h.TLVs[i].Type), byte(tlvs[i].Type))
			assert.True(t, bytes.Equal(h.TLVs[i].Value, tlvs[i].Value))
		}
	}
}

func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return unmap(a.AddrPort())
	case *net.UDPAddr:
		return unmap(a.AddrPort())
	}
	return netip.AddrPort{}
}

func TestBothReadWhatTheOtherWrites(t *testing.T) {
	v4, v6 := netip.MustParseAddrPort("1.2.3.4:5"), netip.MustParseAddrPort("[2001:db8::1]:65535")
	for _, version := range []int{1, 2} {
		for _, a := range []netip.AddrPort{v4, v6} {
			ours, err := proxyproto.FromAddrs(version, a, a).AppendTo(nil)
			assert.NoError(t, err)
			h, n, err := proxyproto.Parse(ours, 0)
			assert.NoError(t, err)
			differential(t, ours, h, n, err)

			tcp := net.TCPAddrFromAddrPort(a)
			theirs, err := other.HeaderProxyFromAddrs(byte(version), tcp, tcp).Format()
			assert.NoError(t, err)
			assert.Equal(t, string(theirs), string(ours))
		}
	}
}
