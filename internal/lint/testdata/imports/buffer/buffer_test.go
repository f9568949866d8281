package buffer

import _ "github.com/weirnet/weir/loop"
