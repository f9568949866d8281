package resp_test

import (
	"errors"
	"fmt"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec"
	"github.com/weirnet/weir/handlers/codec/resp"
)

// A server's side without a socket: requests are taken from the front of what has come in, replies are appended.
func Example() {
	parser, err := resp.NewCommandParser(resp.Config{})
	if err != nil {
		panic(err)
	}
	in := []byte("*2\r\n$4\r\nECHO\r\n$5\r\nhello\r\nPING 'quoted words'\r\n*1\r\n$4\r\nPI")
	out := buffer.New(64)
	for {
		request, n, err := parser.Decode(in)
		if errors.Is(err, codec.ErrShort) {
			fmt.Printf("%d bytes wait for more\n", len(in))
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%q\n", request.Args)
		resp.AppendBulk(out, request.Args[1])
		in = in[n:]
	}
	fmt.Printf("%q\n", out.Bytes())
	// Output:
	// ["ECHO" "hello"]
	// ["PING" "quoted words"]
	// 10 bytes wait for more
	// "$5\r\nhello\r\n$12\r\nquoted words\r\n"
}

// A client's side: replies of any kind.
func ExampleValueParser() {
	parser, err := resp.NewValueParser(resp.Config{})
	if err != nil {
		panic(err)
	}
	reply, _, err := parser.Decode([]byte("*3\r\n:42\r\n$-1\r\n$5\r\nhello\r\n"))
	if err != nil {
		panic(err)
	}
	for _, v := range reply.Elems {
		fmt.Printf("%v %d %q\n", v.Kind, v.Int, v.Bytes)
	}
	fmt.Println("elements:", len(reply.Elems))
	// Output:
	// integer 42 ""
	// null 0 ""
	// bulk 0 "hello"
	// elements: 3
}
