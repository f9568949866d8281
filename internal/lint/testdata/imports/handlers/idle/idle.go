package idle

import (
	_ "github.com/weirnet/weir"                    // want "must not import ."
	_ "github.com/weirnet/weir/handlers/watermark" // want "must not import handlers/watermark"
	_ "github.com/weirnet/weir/pipeline"
	_ "github.com/weirnet/weirless"
)
