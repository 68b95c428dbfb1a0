// An echo server on cloudwego's netpoll: one poller, and its pool of goroutines for the handlers.
package main

import (
	"context"
	"runtime"

	"github.com/cloudwego/netpoll"
	"peers/listen"
)

func main() {
	// The server is measured on one core; more threads would only take turns on it.
	runtime.GOMAXPROCS(1)
	listener, err := netpoll.CreateListener("tcp", listen.TCP())
	listen.Must(err)
	loop, err := netpoll.NewEventLoop(echo)
	listen.Must(err)
	listen.Announce(listener.Addr())
	listen.Must(loop.Serve(listener))
}

// Received bytes are sent from the memory into which they were received. TCP_NODELAY is on by netpoll's default.
func echo(_ context.Context, connection netpoll.Connection) error {
	reader, writer := connection.Reader(), connection.Writer()
	received, err := reader.Next(reader.Len())
	if err != nil {
		return err
	}
	if _, err := writer.WriteBinary(received); err != nil {
		return err
	}
	if err := writer.Flush(); err != nil {
		return err
	}
	return reader.Release()
}
