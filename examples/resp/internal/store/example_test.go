package store_test

import (
	"fmt"

	"github.com/weirnet/weir/examples/resp/internal/store"
)

func Example() {
	st, err := store.New(store.Config{})
	if err != nil {
		panic(err)
	}
	key := []byte("greeting")
	shard := st.DB(0).Lock(key)
	shard.Add(key, store.String).SetString([]byte("hello"))
	fmt.Printf("%s\n", shard.Find(key).Str)
	shard.Unlock()
	// Output: hello
}
