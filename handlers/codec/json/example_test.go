package json_test

import (
	"fmt"
	"testing"

	"github.com/weirnet/weir/buffer"
	"github.com/weirnet/weir/handlers/codec/json"
	"github.com/weirnet/weir/pipeline"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

// printer prints the texts it gets.
type printer struct{}

func (printer) ChannelRead(_ *pipeline.Context, msg any) error {
	fmt.Printf("%s\n", msg.(*buffer.Buf).Bytes())
	return nil
}

func receive(cfg json.Config, pieces ...string) {
	f, err := json.New(cfg)
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, f, printer{})
	for _, p := range pieces {
		ch.WriteInbound(p)
	}
}

func Example() {
	receive(json.Config{}, `{"id": 1, "text": "a } in a st`, `ring"}`+"\n"+`{"id": 2}[3, 4`, `]`)
	// Output:
	// {"id": 1, "text": "a } in a string"}
	// {"id": 2}
	// [3, 4]
}

// An array without an end, element by element.
func ExampleConfig_elements() {
	receive(json.Config{Elements: true}, `[{"id": 1}, {"id"`, `: 2}, "three", `)
	// Output:
	// {"id": 1}
	// {"id": 2}
	// "three"
}

func ExampleSplit() {
	s, err := json.Split(json.Config{})
	if err != nil {
		panic(err)
	}
	in := []byte(`{"id": 1}{"id"`)
	at, n, err := s.Decode(in)
	fmt.Printf("%s %v\n", in[at.Start:at.End], err)
	_, _, err = s.Decode(in[n:])
	fmt.Println(err)
	// Output:
	// {"id": 1} <nil>
	// codec: message is incomplete
}
