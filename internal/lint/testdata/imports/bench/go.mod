module github.com/weirnet/weir/bench
