package logging_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/weirnet/weir/handlers/logging"
	"github.com/weirnet/weir/pipeline/pipelinetest"
)

func Example() {
	noTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "channel" {
			return slog.Attr{}
		}
		return a
	}
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: noTime}))
	handler, err := logging.New(logging.Config{Logger: logger, DumpBytes: 16})
	if err != nil {
		panic(err)
	}
	var t testing.T // a program has a server instead
	ch := pipelinetest.New(&t, handler)
	ch.WriteInbound("hello")
	// Output:
	// level=INFO msg=active local=192.0.2.1:80 remote=192.0.2.2:50000
	// level=INFO msg=read local=192.0.2.1:80 remote=192.0.2.2:50000 bytes=5 dump="00000000  68 65 6c 6c 6f                                    |hello|\n"
	// level=INFO msg="read complete" local=192.0.2.1:80 remote=192.0.2.2:50000
}
