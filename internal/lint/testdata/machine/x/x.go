package x

const (
	a = "/tmp/weir.sock"  // want "a path of the machine"
	b = "/work/tree/x.go" // want "a path of the machine"
	c = "/root/go"        // want "a path of the machine"
	d = "/home/someone"   // want "a path of the machine"
	e = "/run/weir.sock"
	f = "a/tmp/b and https://weir.example/work/with"
	g = "/tmp/weir.sock" //weir:path where the program puts it unless told otherwise

	//weir:path where the program puts it unless told otherwise
	h = "/tmp/weir.sock"
	i = "GOPROXY=https://modules.example" // want "a proxy"
	j = "goproxy.cache.corp"              // want "a proxy"
	k = "http://mirror.weir.dev/debian"   // want "a proxy"
	l = "build-7.intra"                   // want "a proxy"
	m = "a proxy, proxy.go, reverse proxy, weir.example"
	n = "/workers/ and /tmpl"
)
