// An echo server on gnet: one event loop, whose handler echoes from the loop's own buffer.
package main

import (
	"net"
	"os"
	"runtime"

	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"
	"peers/listen"
)

type server struct {
	gnet.BuiltinEventEngine
}

func main() {
	// The server is measured on one core; more threads would only take turns on it.
	runtime.GOMAXPROCS(1)
	err := gnet.Run(&server{}, "tcp://"+listen.TCP(), gnet.WithNumEventLoop(1), gnet.WithLogger(zap.NewNop().Sugar()))
	listen.Must(err)
}

// OnBoot is called once the socket listens. Only the socket itself knows its address.
func (*server) OnBoot(engine gnet.Engine) gnet.Action {
	descriptor, err := engine.Dup()
	listen.Must(err)
	file := os.NewFile(uintptr(descriptor), "listener")
	listener, err := net.FileListener(file)
	listen.Must(err)
	listen.Announce(listener.Addr())
	listen.Must(listener.Close())
	listen.Must(file.Close())
	return gnet.None
}

// OnTraffic echoes the received bytes. TCP_NODELAY is on by gnet's default.
func (*server) OnTraffic(connection gnet.Conn) gnet.Action {
	received, err := connection.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := connection.Write(received); err != nil {
		return gnet.Close
	}
	return gnet.None
}
