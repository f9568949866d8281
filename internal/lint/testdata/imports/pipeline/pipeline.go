package pipeline

import (
	_ "github.com/weirnet/weir/buffer"
	_ "github.com/weirnet/weir/channel"   // want "pipeline must not import channel"
	_ "github.com/weirnet/weir/loop"      // want "pipeline must not import loop"
	_ "github.com/weirnet/weir/transport" // want "pipeline must not import transport"
)
