package lb

//go:generate bash ../bpf/generate lb balancer vip_key vip ring_line server flow_key flow counters reason
