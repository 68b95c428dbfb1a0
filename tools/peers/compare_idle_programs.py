#!/usr/bin/env python3
"""Compares the memory of idle connections of whole programs: our examples `static_files`, `redis`
and `proxy` (io_uring, epoll) beside nginx, redis-server and HAProxy, with the tuned
configurations of the comparisons.

    compare_idle_programs.py [--connections N] [--rounds N] [--wait S] [--json FILE] DIRECTORY

In each round, every server is started again, in a changing order. A client in this process opens
N connections, sends one request over each, reads the answers, and keeps all connections open.
/proc has the resident memory (anonymous pages) of all processes of the server, which is read
before the first connection, after the last answer, and S seconds later, when unneeded memory has
been returned. The figures are bytes per connection, as medians of the rounds. A proxy gets half
of the connections, because it needs two descriptors for each, and so does this process, which is
also its target. A file server gets three tenths: ours closes connections that are idle for 10 s,
and all have to be open before that.

DIRECTORY has the examples, as built by tools/peers/annulus-examples/build. Programs that are not
installed are left out and listed. Exit code: 0 measured, 1 a program failed, 2 usage, 3 this
machine lacks something.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import selectors
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
import compare_idle

PEERS = pathlib.Path(__file__).resolve().parent
PATIENCE = 60.0
HTTP = (b"GET /page HTTP/1.1\r\nhost: localhost\r\n\r\n", b"a page")
PING = (b"PING\r\n", b"+PONG\r\n")
ECHO = (b"a message", b"a message")
DRIVERS = ["uring", "epoll"]
# The comparisons: the exchange, the share of `--connections`, our example with its arguments, and the installed program with its package.
COMPARISONS = {
    "files": (HTTP, 0.3, "static_files", ["{SITE}", "100000"], ("nginx", "nginx-light", "nginx/tuned.conf")),
    "store": (PING, 1.0, "redis", ["100000"], ("redis-server", "redis-server", "redis/tuned.conf")),
    "proxy": (ECHO, 0.5, "proxy", ["{TARGET}", "600", "100000"], ("haproxy", "haproxy", "haproxy/tuned.cfg")),
}


class Echo:
    """A target for proxies, on its own thread."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.selector.register(self.listener.accept()[0], selectors.EVENT_READ)
                else:
                    self._echo(key.fileobj)

    def _echo(self, connection):
        with contextlib.suppress(ConnectionError):
            if part := connection.recv(4096):
                return connection.sendall(part)
        self.selector.unregister(connection)
        connection.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def processes_of(process):
    """Returns the process and those that it has started."""
    found, todo = [], [process.pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
            todo += [int(child) for child in children.read_text().split()]
    return found


def own_memory(process):
    return sum(compare_idle.kilobytes(f"/proc/{pid}/status", ["RssAnon"]) for pid in processes_of(process))


def start_example(directory, name, arguments, driver, words):
    command = [directory / name, "127.0.0.1:0", *(argument.format(**words) for argument in arguments)]
    environment = {**os.environ, "ANNULUS_DRIVER": driver}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    line = server.stderr.readline()
    # Reads the log of connections, so that it does not fill the pipe.
    threading.Thread(target=server.stderr.read, daemon=True).start()
    return server, int(re.search(r"listening on 127\.0\.0\.1:(\d+)", line)[1])


def start_installed(program, configuration, connections, words):
    port = free_port()
    text = (PEERS / configuration).read_text()
    # The configurations are for the loads of the bench, which have fewer connections. nginx closes idle ones when it nears its limit.
    text = re.sub(r"maxconn \d+", f"maxconn {connections + 10}", text)
    text = re.sub(r"worker_connections \d+", f"worker_connections {2 * connections}", text)
    if program == "redis-server":
        text += f"\nmaxclients {connections + 40}\n"
    for word, value in {**words, "PORT": port}.items():
        text = text.replace("{%s}" % word, str(value))
    path = pathlib.Path(words["SCRATCH"]) / "configuration"
    path.write_text(text)
    arguments = {
        "nginx": ["-e", "stderr", "-c", path],
        "redis-server": [path],
        "haproxy": ["-f", path],
    }[program]
    quiet = subprocess.DEVNULL
    server = subprocess.Popen([shutil.which(program), *arguments], stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + PATIENCE
    while server.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ConnectionError):
            socket.create_connection(("127.0.0.1", port)).close()
            return server, port
        time.sleep(0.02)
    raise SystemExit(f"{program} does not listen on {port}")


def measure(start, exchange, count, wait):
    """Returns bytes per connection: after the answers, and later."""
    server, port = start()
    connections = []
    try:
        compare_idle.converse(port, *exchange).close()  # Memory that only the first connection allocates does not count.
        before = own_memory(server)
        connections += [compare_idle.converse(port, *exchange) for _ in range(count)]
        after = own_memory(server)
        time.sleep(wait)
        check_open(server, connections[0])
        return [(value - before) / count for value in (after, own_memory(server))]
    finally:
        for connection in connections:
            connection.close()
        server.kill()
        server.wait()


def check_open(server, connection):
    """Checks that the first connection is still open, which would be the first to be closed for being idle."""
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        rest = connection.recv(100)
        raise SystemExit(f"{server.args[0]} sent {rest!r}, or closed a connection because it was idle: use fewer connections, or a shorter wait")


def contenders(directory, name, connections, words):
    _, _, example, arguments, (program, package, configuration) = COMPARISONS[name]
    if shutil.which(program):
        yield program, lambda: start_installed(program, configuration, connections, words)
    else:
        print(f"left out: {program}: apt-get install {package}", file=sys.stderr)
    for driver in DRIVERS:
        yield driver, lambda driver=driver: start_example(directory, example, arguments, driver, words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--connections", type=int, default=15_000)
    parser.add_argument("--rounds", type=int, default=3)
    # Short enough for `static_files`, which closes connections that are idle for 10 s.
    parser.add_argument("--wait", type=float, default=1.0)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    if options.connections < 10 or options.rounds < 1 or options.wait < 0:
        parser.error("use at least ten connections and one round, and no negative wait")
    compare_idle.raise_limit(options.connections)
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        site = pathlib.Path(scratch) / "site"
        site.mkdir()
        (site / "page").write_bytes(HTTP[1])
        os.chmod(scratch, 0o755)
        words = {"SITE": site, "TARGET": Echo().address, "SCRATCH": scratch, "ROOT": site}
        for name, (exchange, part, *_) in COMPARISONS.items():
            count = int(options.connections * part)
            servers = list(contenders(options.directory.resolve(), name, count, words))
            for _ in range(options.rounds):
                for server, start in random.sample(servers, len(servers)):
                    row = measure(start, exchange, count, options.wait)
                    results.setdefault(f"{name}, {count}", {}).setdefault(server, []).append(row)
    report(results, options)


def report(results, options):
    print(f"bytes per connection, medians of {options.rounds} rounds")
    print(f"{'':32}{'answered':>10}{f'{options.wait:g} s later':>14}")
    for name, servers in results.items():
        for server, rounds in servers.items():
            after, later = (statistics.median(column) for column in zip(*rounds))
            print(f"{name + ': ' + server:32}{after:10.0f}{later:14.0f}")
    if options.json:
        options.json.write_text(json.dumps({"connections": options.connections, "rounds": results}, indent=1))


if __name__ == "__main__":
    main()
