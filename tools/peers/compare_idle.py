#!/usr/bin/env python3
"""Compares the memory of idle HTTP/1 connections: hyper on annulus (on io_uring and epoll, and
with `annulus_compat::tower::serve`, which releases idle connections) and on tokio, the programs
of the comparisons.

    compare_idle.py [--connections N] [--rounds N] [--wait S] [--json FILE] [DIRECTORY]

In each round, every server is started again, in a changing order. A client in this process opens
N connections, sends one request over each, reads the answers, and keeps all connections open.
/proc has the server's own resident memory (anonymous pages), which is read before the first
connection, after the last answer, and S seconds later, when unneeded memory has been returned.
/proc also has the kernel's memory in slabs and sockets, which covers the whole machine: both ends
of the connections, and everything else. The figures are bytes per connection, as medians of the
rounds. tokio is measured twice, the second time as a control.

DIRECTORY has the programs `annulus` and `tokio`, as built by tools/peers/hyper/build. Without
DIRECTORY they are built first. Exit code: 0 measured, 1 a program failed, 2 usage, 3 this machine
lacks something.
"""

import argparse
import json
import pathlib
import random
import re
import resource
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
BODY = b"hello\n"
BASELINE = "tokio"
SERVERS = {
    "annulus, io_uring": ("annulus", ["uring"]),
    "annulus, epoll": ("annulus", ["epoll"]),
    "io_uring, tower::serve": ("annulus", ["uring-serve"]),
    BASELINE: ("tokio", []),
    "tokio (control)": ("tokio", []),
}
PATIENCE = 60.0
SPARE_DESCRIPTORS = 100
UNAVAILABLE = 3


def kilobytes(path, names):
    """Returns the sum of some lines of a file in /proc, in bytes."""
    fields = dict(line.split(":", 1) for line in pathlib.Path(path).read_text().splitlines() if ":" in line)
    return sum(int(fields[name].split()[0]) * 1024 for name in names)


def own_memory(process):
    return kilobytes(f"/proc/{process.pid}/status", ["RssAnon"])


def kernel_memory():
    return kilobytes("/proc/meminfo", ["Slab", "Percpu"]) + socket_memory()


def socket_memory():
    """Returns the memory of TCP's queues in the kernel."""
    found = re.search(r"^TCP: .* mem (\d+)", pathlib.Path("/proc/net/sockstat").read_text(), re.M)
    return int(found[1]) * resource.getpagesize() if found else 0


def start(program, arguments):
    server = subprocess.Popen([program, "0", "http1", *arguments], stderr=subprocess.PIPE, text=True)
    line = server.stderr.readline()
    ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
    if not ready:
        server.kill()
        server.wait()
        raise SystemExit(f"{program} does not listen: {line.strip()}")
    return server, int(ready[1])


def converse(port, request=REQUEST, end=BODY):
    """Opens a connection, and returns it after a request and an answer that ends with these bytes."""
    connection = socket.create_connection(("127.0.0.1", port), PATIENCE)
    connection.sendall(request)
    answer = b""
    while not answer.endswith(end):
        part = connection.recv(4096)
        if not part:
            raise SystemExit(f"the server closed a connection: {answer!r}")
        answer += part
    return connection


def measure(program, arguments, count, wait):
    """Returns bytes per connection: after the answers, later, and in the kernel."""
    server, port = start(program, arguments)
    connections = []
    try:
        converse(port).close()  # Memory that only the first connection allocates does not count.
        before, kernel = own_memory(server), kernel_memory()
        connections += [converse(port) for _ in range(count)]
        after = own_memory(server)
        time.sleep(wait)
        later, in_kernel = own_memory(server), kernel_memory()
        return [(value - base) / count for value, base in ((after, before), (later, before), (in_kernel, kernel))]
    finally:
        for connection in connections:
            connection.close()
        server.kill()
        server.wait()
        server.stderr.close()


def raise_limit(count):
    """Raises the limit of descriptors for this process and for the servers, which inherit it."""
    wanted = count + SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        print(f"{count} connections need {wanted} descriptors, but the limit is {hard}: raise it with ulimit -Hn", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def built():
    build = subprocess.run([ROOT / "tools/peers/hyper/build", ROOT / "target/peers/hyper"], stdout=subprocess.PIPE, text=True)
    if build.returncode != 0:
        sys.exit(build.returncode)
    return build.stdout.splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", type=pathlib.Path)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wait", type=float, default=15.0)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.connections < 1 or options.rounds < 1 or options.wait < 0:
        parser.error("use at least one connection and one round, and no negative wait")
    raise_limit(options.connections)
    directory = options.directory or pathlib.Path(built())
    results = {name: [] for name in SERVERS}
    for _ in range(options.rounds):
        for name in random.sample(list(SERVERS), len(SERVERS)):
            program, arguments = SERVERS[name]
            results[name].append(measure(directory / program, arguments, options.connections, options.wait))
    report(results, options)


def report(results, options):
    medians = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in results.items()}
    print(f"bytes per connection, {options.connections} connections, {options.rounds} rounds")
    print(f"{'':24}{'answered':>10}{f'{options.wait:g} s later':>14}{'ratio':>8}{'in the kernel':>16}")
    for name, (after, later, kernel) in medians.items():
        ratio = later / medians[BASELINE][1]
        print(f"{name:24}{after:10.0f}{later:14.0f}{ratio:8.3f}{kernel:16.0f}")
    if options.json:
        options.json.write_text(json.dumps({"connections": options.connections, "rounds": results}, indent=1))


if __name__ == "__main__":
    main()
