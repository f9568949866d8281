package channel

import _ "golang.org/x/sys/unix"
