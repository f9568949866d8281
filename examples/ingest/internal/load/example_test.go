package load_test

import (
	"fmt"

	"github.com/weirnet/weir/examples/ingest/internal/load"
)

func Example() {
	frame := load.SyslogLine(nil, load.AppendMark(nil, 3, 17, "padding"))
	fmt.Print(string(frame))
	connection, sequence, err := load.Mark(frame)
	fmt.Println(connection, sequence, err)
	// Output:
	// <14>Jan  2 03:04:05 host app[42]: c3.s17.k38b4ff29.padding
	// 3 17 <nil>
}
