package x

import "github.com/weirnet/weir/buffer"

func Helper(b *buffer.Buf) {}
