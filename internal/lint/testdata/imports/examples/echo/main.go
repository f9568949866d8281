package main

import (
	_ "github.com/weirnet/weir"
	_ "github.com/weirnet/weir/handlers/watermark"
)
