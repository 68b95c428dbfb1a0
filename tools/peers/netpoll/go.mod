module peers/netpoll

go 1.24

require peers/listen v0.0.0

require github.com/cloudwego/netpoll v0.7.2

require (
	github.com/bytedance/gopkg v0.1.1 // indirect
	github.com/cloudwego/gopkg v0.1.4 // indirect
)

replace peers/listen => ../listen
