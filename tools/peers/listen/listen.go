// Package listen has the common parts of the Go peers: the address argument, the announcement, and errors of one line. The
// contract is in peers/README.md.
package listen

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Buffer is the maximum number of bytes per receive: enough for the largest message of the usual comparisons.
const Buffer = 16 * 1024

// Shortage is how long a server that is out of descriptors waits before it accepts again.
const Shortage = 10 * time.Millisecond

// Exit codes of the contract.
const (
	failed      = 1
	usage       = 2
	unavailable = 3
)

// Any returns the program's only argument as package net writes addresses: "tcp", "udp" or "unix", and where.
func Any() (network, address string) {
	network, address, _ = arguments(nil)
	return network, address
}

// TCP returns the program's only argument for a peer that serves only TCP.
func TCP() string {
	address, _ := TCPWith(nil)
	return address
}

// TCPWith is like TCP, for a peer with modes: the second argument may be one of them.
func TCPWith(modes []string) (address, mode string) {
	network, address, mode := arguments(modes)
	if network != "tcp" {
		end(usage, "cannot serve %s:%s: this peer serves only TCP; give PORT", network, address)
	}
	return address, mode
}

// Announce prints where the server listens, once everything is set up.
func Announce(address net.Addr) {
	scheme := map[string]string{"udp": "udp://", "unix": "unix:"}[address.Network()]
	fmt.Fprintf(os.Stderr, "listening on %s%s\n", scheme, address)
}

// Must ends the program with one line if a set-up step failed.
func Must(err error) {
	if err != nil {
		end(failed, "cannot serve: %v", err)
	}
}

// MustHaveRing is like Must, for setting up io_uring, which the system may lack or forbid.
func MustHaveRing(err error) {
	if err != nil {
		end(unavailable, "io_uring is not available: %v", err)
	}
}

func arguments(modes []string) (network, address, mode string) {
	switch {
	case len(os.Args) == 2:
	case len(os.Args) == 3 && slices.Contains(modes, os.Args[2]):
		mode = os.Args[2]
	case len(os.Args) == 3 && len(modes) > 0:
		end(usage, "unknown mode '%s'; known modes: %s", os.Args[2], strings.Join(modes, ", "))
	default:
		end(usage, "usage: PROGRAM ADDRESS, such as 0 for a free port")
	}
	network, address = parse(os.Args[1])
	return network, address, mode
}

func parse(text string) (network, address string) {
	if path, isPath := strings.CutPrefix(text, "unix:"); isPath && path != "" {
		return "unix", path
	}
	network = "tcp"
	port, isDatagram := strings.CutPrefix(text, "udp:")
	if isDatagram {
		network = "udp"
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		end(usage, "'%s' is not an address: give PORT, udp:PORT or unix:/path", text)
	}
	return network, "127.0.0.1:" + port
}

func end(code int, format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(code)
}
