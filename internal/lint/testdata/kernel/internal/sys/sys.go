package sys

import _ "golang.org/x/sys/unix"
