package weir

import (
	_ "github.com/weirnet/weir/channel"
	_ "github.com/weirnet/weir/handlers/watermark" // want "must not import handlers/watermark"
	_ "github.com/weirnet/weir/metrics"            // want "must not import metrics"
	_ "github.com/weirnet/weir/xdp/shield"         // want "must not import xdp/shield"
)
