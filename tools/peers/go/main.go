// An echo server on Go's own net package: a goroutine per connection, each with its own buffer; one goroutine for UDP.
package main

import (
	"net"
	"runtime"
	"time"

	"peers/listen"
)

// More than the longest datagram, so that none is cut off.
const datagram = 1 << 16

func main() {
	// The server is measured on one core; more threads would only take turns on it.
	runtime.GOMAXPROCS(1)
	network, address := listen.Any()
	if network == "udp" {
		serveDatagrams(address)
	} else {
		serveStreams(network, address)
	}
}

func serveStreams(network, address string) {
	listener, err := net.Listen(network, address)
	listen.Must(err)
	listen.Announce(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			time.Sleep(listen.Shortage)
			continue
		}
		go echo(connection)
	}
}

// TCP_NODELAY is on by net's default.
func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, listen.Buffer)
	for {
		length, err := connection.Read(buffer)
		if err != nil {
			return
		}
		if _, err := connection.Write(buffer[:length]); err != nil {
			return
		}
	}
}

func serveDatagrams(address string) {
	local, err := net.ResolveUDPAddr("udp", address)
	listen.Must(err)
	socket, err := net.ListenUDP("udp", local)
	listen.Must(err)
	listen.Announce(socket.LocalAddr())
	buffer := make([]byte, datagram)
	for {
		length, from, err := socket.ReadFromUDPAddrPort(buffer)
		if err == nil {
			// A datagram that cannot be sent is dropped: the next one may have another destination.
			socket.WriteToUDPAddrPort(buffer[:length], from)
		}
	}
}
