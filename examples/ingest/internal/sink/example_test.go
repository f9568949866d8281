package sink_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/weirnet/weir/examples/ingest/internal/sink"
)

func Example() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file, err := sink.NewFile(sink.FileConfig{Dir: dir, Sync: sink.SyncAlways})
	if err != nil {
		log.Fatal(err)
	}
	queue, err := sink.NewQueue(file, sink.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := queue.Put([]byte("{\"value\":1}\n{\"value\":2}\n"), 2); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = queue.Close(ctx)
	fmt.Println(queue.Stats().DeliveredRecords, "delivered, error:", err)
	// Output: 2 delivered, error: <nil>
}
