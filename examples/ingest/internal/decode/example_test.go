package decode_test

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/examples/ingest/internal/decode"
)

func Example() {
	line := decode.NewLine(decode.Graphite{}, time.Unix(1700000000, 0), "192.0.2.1:4711")
	out, _ := line.Append(nil, []byte("servers.a.cpu 12.5 1700000000"))
	fmt.Print(string(out))
	// Output:
	// {"at":"2023-11-14T22:13:20.000Z","from":"192.0.2.1:4711","format":"graphite","path":"servers.a.cpu","value":12.5,"time":1700000000}
}
