package transport_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirnet/weir/transport"
)

func TestTokenKeepsItsParts(t *testing.T) {
	for _, slot := range []uint32{0, 1, 1 << 24, transport.SlotReserved - 1, transport.SlotReserved, 1<<32 - 1} {
		for _, generation := range []uint32{0, 1, 1<<24 - 1} {
			for _, tag := range []uint8{0, uint8(transport.Cancel), 255} {
				token := transport.MakeToken(slot, generation, tag)
				assert.Equal(t, slot, token.Slot())
				assert.Equal(t, generation, token.Generation())
				assert.Equal(t, tag, token.Tag())
			}
		}
	}
}

func TestTokenGenerationCountsModulo2To24(t *testing.T) {
	assert.Equal(t, transport.MakeToken(7, 1, 2), transport.MakeToken(7, 1<<24+1, 2))
}

func ExampleMakeToken() {
	token := transport.MakeToken(3, 14, uint8(transport.Recv))
	fmt.Println(token.Slot(), token.Generation(), transport.Kind(token.Tag()) == transport.Recv)
	// Output: 3 14 true
}
