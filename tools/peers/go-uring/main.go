// An echo server on go-uring's reactor and net.Conn: a goroutine per connection, each with its own buffer.
//
// Without a mode, the server has six rings over two worker pools, as in the library's own
// benchmark. With `one-ring` it has one ring, as the library's author recommends for few
// connections. With `sqpoll` it has two rings, each with a kernel thread that polls for
// submissions.
package main

import (
	"net"
	"runtime"
	"syscall"
	"time"

	uringnet "github.com/godzie44/go-uring/net"
	"github.com/godzie44/go-uring/reactor"
	"github.com/godzie44/go-uring/uring"
	"peers/listen"
)

const (
	oneRing = "one-ring"
	sqPoll  = "sqpoll"

	entries = uring.MaxEntries >> 3
	// How long a kernel thread polls before it sleeps.
	idle = 100 * time.Millisecond
)

func main() {
	address, mode := listen.TCPWith([]string{oneRing, sqPoll})
	// Twice the cores, as in the library's example: its reactor blocks a thread in the kernel and needs another to submit.
	runtime.GOMAXPROCS(2 * runtime.NumCPU())
	listener := serve(freePort(address), rings(mode))
	listen.Announce(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			time.Sleep(listen.Shortage)
			continue
		}
		go echo(connection.(*uringnet.Conn))
	}
}

func rings(mode string) []*uring.Ring {
	count, pools := 6, 2
	var options []uring.SetupOption
	switch mode {
	case oneRing:
		count, pools = 1, 1
	case sqPoll:
		count = 2
		options = append(options, uring.WithSQPoll(idle))
	}
	rings, _, err := uring.CreateMany(count, entries, pools, options...)
	listen.MustHaveRing(err)
	return rings
}

// The library's listener does not report which free port it got, so a port is chosen in advance.
func freePort(address string) string {
	listener, err := net.Listen("tcp", address)
	listen.Must(err)
	defer listener.Close()
	return listener.Addr().String()
}

func serve(address string, rings []*uring.Ring) net.Listener {
	reactor, err := reactor.NewNet(rings)
	listen.MustHaveRing(err)
	listener, err := uringnet.NewListener(net.ListenConfig{}, address, reactor)
	listen.Must(err)
	return listener
}

func echo(connection *uringnet.Conn) {
	defer connection.Close()
	if syscall.SetsockoptInt(int(connection.Fd()), syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) != nil {
		return
	}
	buffer := make([]byte, listen.Buffer)
	for {
		length, err := connection.Read(buffer)
		if err != nil || !send(connection, buffer[:length]) {
			return
		}
	}
}

// Sends all bytes. The library's Write makes one send, which is short if the socket is full.
func send(connection *uringnet.Conn, rest []byte) bool {
	for len(rest) > 0 {
		sent, err := connection.Write(rest)
		if err != nil {
			return false
		}
		rest = rest[sent:]
	}
	return true
}
