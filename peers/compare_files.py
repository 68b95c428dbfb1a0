#!/usr/bin/env python3
"""Compares servers of static files: the example `static_files`, its twin on tokio, and nginx with `nginx/tuned.conf`.

    compare_files.py [--rounds N] [--seconds S] [--sizes KIB,...] [--connections N,...] [--server-core N] [--client-core N]
                     [--ours PATH]

wrk is the client, with one thread. Servers and client have a core each. All servers run for the whole comparison and idle while
another is measured; in each round each is measured once, in an order that changes; nginx runs a second time as a control. Ratios are
of one round, to nginx; the table has their median, and the interval that 95 % of resampled medians lie in. CPU is that of a
server's threads and children over the slice, user and kernel, per request. wrk reads 8 KiB at a time, and is the limit for large files.

It builds what it needs, and takes nginx and wrk from PATH. Exit code: 0 measured, 1 a program failed, 2 usage, 3 a program is missing.
"""

import contextlib
import os
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True

import comparison
from comparison import Server, client, configured

BASELINE = "nginx"
RATIOS = [("requests/s", "per_second"), ("CPU ns/req", "cpu_ns")]


def load(server, kib, connections, options):
    """Runs wrk; requests a second, and CPU of the server per request in ns."""
    words = f"wrk -t1 -c{connections} -d{options.seconds:g}s http://127.0.0.1:{server.port}/{kib}.bin"
    text, cpu = client(words.split(), server, options)
    count, rate = re.search(r"(\d+) requests in", text), re.search(r"Requests/sec:\s+([\d.]+)", text)
    if not count or not rate or int(count[1]) == 0 or "Non-2xx" in text:
        raise SystemExit(f"wrk failed at {server.name}: {text}")
    return {"per_second": float(rate[1]), "cpu_ns": cpu / int(count[1])}


def measure(servers, kib, connections, options):
    def once(server):
        return load(server, kib, connections, options)

    # Opens files, and warms caches.
    comparison.slices(servers, 1, once)
    cell = comparison.slices(servers, options.rounds, once)
    comparison.print_cell(f"{kib} KiB, {connections} connections", cell, BASELINE, RATIOS)


def start(running, nginx, examples, site, scratch, core):
    """Starts every server; nginx first and last."""
    def of_nginx(name, number):
        return configured(name, [nginx, "-c"], "nginx/tuned.conf", {"ROOT": site}, scratch / number, core)

    servers = [running.enter_context(of_nginx(BASELINE, "one"))]
    for name, path in examples.items():
        servers.append(running.enter_context(Server(name, [path, "127.0.0.1:0", site], core)))
    return [*servers, running.enter_context(of_nginx("nginx (again)", "two"))]


def numbers(text):
    return [int(word) for word in text.split(",")]


def arguments():
    parser = comparison.parser(__doc__, 9)
    parser.add_argument("--sizes", type=numbers, default=[4, 64, 1024], help="files, in KiB (4,64,1024)")
    parser.add_argument("--connections", type=numbers, default=[50], help="(50)")
    parser.add_argument("--ours", type=pathlib.Path, help="a program to measure instead of those that are built")
    options = comparison.parse(parser)
    if min(options.sizes + options.connections) < 1 or options.seconds < 1:
        parser.error("--sizes, --connections and --seconds must be 1 or more")
    return options


def main():
    options = arguments()
    paths = comparison.found(["nginx", "wrk"], "nginx-light wrk")
    examples = {"annulus": options.ours} if options.ours else comparison.built_example("static_files")
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as running:
        scratch = pathlib.Path(temporary)
        # The worker of nginx is another user than root.
        scratch.chmod(0o755)
        site = scratch / "site"
        site.mkdir()
        for kib in options.sizes:
            (site / f"{kib}.bin").write_bytes(os.urandom(kib * 1024))
        servers = start(running, paths["nginx"], examples, site, scratch, options.server_core)
        for kib in options.sizes:
            for connections in options.connections:
                measure(servers, kib, connections, options)


if __name__ == "__main__":
    main()
