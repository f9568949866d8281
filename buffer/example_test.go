package buffer_test

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
)

// A handler borrows a Buf, keeps a part of it past its return and releases that later.
func Example() {
	pool := buffer.NewPool(buffer.PoolConfig{})
	received := pool.Get(64)
	received.AppendString("GET /weir\r\n")

	var view buffer.Buf                   // a decoder has one and uses it again and again
	line := received.Scratch(&view, 0, 9) // costs no reference
	kept := line.Retain()                 // whoever keeps it gets a Buf of its own

	received.Release() // the loop is done with it
	kept.Advance(len("GET "))
	fmt.Printf("%s, %d Bufs outstanding\n", kept.Bytes(), pool.Outstanding())

	kept.Release()
	fmt.Printf("%d Bufs outstanding, %d bytes free\n", pool.Outstanding(), pool.FreeBytes())
	// Output:
	// /weir, 2 Bufs outstanding
	// 0 Bufs outstanding, 256 bytes free
}
