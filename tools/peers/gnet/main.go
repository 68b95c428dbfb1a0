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
	// The server is measured on one core; more would be threads that take turns on it.
	runtime.GOMAXPROCS(1)
	err := gnet.Run(&server{}, "tcp://"+listen.TCP(), gnet.WithNumEventLoop(1), gnet.WithLogger(zap.NewNop().Sugar()))
	listen.Must(err)
}

// OnBoot comes when the listening socket is there; its address only the socket itself knows.
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

// OnTraffic echoes what there is. TCP_NODELAY is on: gnet's default.
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
