package buffer

import (
	_ "fmt"

	_ "github.com/weirnet/weir/flow" // want "buffer must not import flow"
	_ "github.com/weirnet/weir/internal/invariants"
)
