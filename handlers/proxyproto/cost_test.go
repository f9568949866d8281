package proxyproto_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirnet/weir/handlers/proxyproto"
)

func TestEncodingDoesNotAllocate(t *testing.T) {
	out := make([]byte, 0, 256)
	for version := 1; version <= 2; version++ {
		h := header4(version)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = h.AppendTo(out) }), version)
	}
}

func BenchmarkParse(b *testing.B) {
	for version := 1; version <= 2; version++ {
		b.Run(fmt.Sprintf("version=%d", version), func(b *testing.B) {
			wire, err := header4(version).AppendTo(nil)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := proxyproto.Parse(wire, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
