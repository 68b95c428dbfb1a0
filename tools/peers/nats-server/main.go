// nats-server with its own defaults, without logs, for `bench fan-out`. It disconnects slow clients
// by its own rules.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"peers/listen"
)

const usage = "usage: nats-server PORT fan-out, such as 0 for a free port"

func main() {
	if len(os.Args) != 3 || os.Args[2] != "fan-out" {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	port, err := strconv.Atoi(os.Args[1])
	if err != nil || port < 0 || port > 65535 {
		fmt.Fprintln(os.Stderr, usage)
		os.Exit(2)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	options := &server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, MaxConn: 65536}
	nats, err := server.NewServer(options)
	listen.Must(err)
	nats.Start()
	if !nats.ReadyForConnections(20 * time.Second) {
		listen.Must(errors.New("it does not accept connections"))
	}
	listen.Announce(nats.Addr())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}
