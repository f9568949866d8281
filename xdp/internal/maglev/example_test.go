package maglev_test

import (
	"fmt"

	"github.com/weirnet/weir/xdp/internal/maglev"
)

func ExampleBuild() {
	table, err := maglev.Build(256, []maglev.Member{
		{Key: "192.0.2.11", Value: 0, Weight: 3}, {Key: "192.0.2.12", Value: 1, Weight: 1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	cells := map[uint16]int{}
	for _, member := range table {
		cells[member]++
	}
	fmt.Println(cells)
	// Output: map[0:192 1:64]
}
