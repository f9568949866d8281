package uring

import _ "golang.org/x/sys/unix"
