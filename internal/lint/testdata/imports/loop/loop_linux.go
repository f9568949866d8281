package loop

import (
	_ "github.com/weirnet/weir/pipeline" // want "loop must not import pipeline"
	_ "github.com/weirnet/weir/transport"
)
