package command_test

import (
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/examples/resp/internal/command"
	"github.com/weirnet/weir/examples/resp/internal/store"
)

func Example() {
	st, err := store.New(store.Config{})
	if err != nil {
		panic(err)
	}
	commands, err := command.New(st)
	if err != nil {
		panic(err)
	}
	session := commands.NewSession()
	defer session.Close()
	out := buffer.New(64)
	session.Execute([][]byte{[]byte("RPUSH"), []byte("list"), []byte("a"), []byte("b")}, out)
	session.Execute([][]byte{[]byte("INCR"), []byte("list")}, out)
	fmt.Printf("%q\n", out.Bytes())
	// Output: ":2\r\n-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
}
