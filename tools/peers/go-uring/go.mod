module peers/go-uring

go 1.24

require peers/listen v0.0.0

require github.com/godzie44/go-uring v0.0.0-20250501163612-d16a9e597639

require (
	github.com/libp2p/go-sockaddr v0.1.1 // indirect
	golang.org/x/sys v0.0.0-20210921065528-437939a70204 // indirect
)

replace peers/listen => ../listen
