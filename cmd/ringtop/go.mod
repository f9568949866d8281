module github.com/weirnet/weir/cmd/ringtop

go 1.26.0

replace github.com/weirnet/weir => ../..

require (
	github.com/cilium/ebpf v0.22.0
	github.com/stretchr/testify v1.12.1
	github.com/weirnet/weir v0.0.0-00010101000000-000000000000
	golang.org/x/sys v0.50.0
)

require (
	github.com/iceber/iouring-go v0.0.0-20230403020409-002cfd2e2a90 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
)
