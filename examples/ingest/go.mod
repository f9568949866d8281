module github.com/weirnet/weir/examples/ingest

go 1.26.0

replace github.com/weirnet/weir => ../..

require (
	github.com/leodido/go-syslog/v4 v4.6.0
	github.com/nats-io/nats.go v1.55.0
	github.com/nats-io/nuid v1.0.1
	github.com/stretchr/testify v1.12.1
	github.com/weirnet/weir v0.0.0-00010101000000-000000000000
)

require (
	github.com/klauspost/compress v1.20.0 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/crypto v0.57.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
