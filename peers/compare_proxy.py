#!/usr/bin/env python3
"""Compares TCP proxies: the example `proxy`, its twin on tokio, HAProxy with `haproxy/tuned.cfg`, nginx with `nginx/stream.conf`.

    compare_proxy.py [--rounds N] [--seconds S] [--cells CONNECTIONSxBYTES,...] [--server-core N] [--client-core N]
                     [--ours NAME=PATH ...] [--annulus PATH]

`annulus load` is the client, and `annulus echo` what the proxies lead to; both run on the client core, the proxies on the other.
All proxies run for the whole comparison and idle while another is measured; in each round each is measured once, in an order that
changes; the first runs a second time as a control. Ratios are of one round, to the first; the table has their median, and the
interval that 95 % of resampled medians lie in. CPU is that of a proxy's threads and children over the slice, user and kernel, per
message that came back; a message is passed on twice.

It builds what it needs, and takes haproxy and nginx from PATH; what is not installed is left out, with a line that says how to get it.
Exit code: 0 measured, 1 a program failed, 2 usage.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True

import comparison
from comparison import Server, client, configured

MODULES = ("/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so")
RATIOS = [("CPU ns/msg", "cpu_ns"), ("messages/s", "per_second")]
OTHERS = [("p99 us", "p99_us", ",.0f")]


def load(server, connections, length, options):
    """Runs the client; messages a second, their p99, and CPU of the proxy per message in ns."""
    words = f"load -a 127.0.0.1:{server.port} -c {connections} -l {length} -t {options.seconds:g} --warm-up 0 --json -"
    text, cpu = client([options.annulus, *words.split()], server, options)
    result = json.loads(text)
    return {
        "cpu_ns": cpu / result["responses"],
        "per_second": result["requests_per_second"],
        "p99_us": result["latency_us"]["p99"],
    }


def measure(servers, connections, length, options):
    def once(server):
        return load(server, connections, length, options)

    # Warms caches.
    comparison.slices(servers, 1, once)
    cell = comparison.slices(servers, options.rounds, once)
    comparison.print_cell(f"{connections} connections, {length} bytes", cell, servers[0].name, RATIOS, OTHERS)


def start(running, options, scratch):
    """Starts an echo server, and every proxy in front of it; the first one again, last."""
    core = options.server_core
    command = [options.annulus, "echo", "--listen", "127.0.0.1:0", "--pin", options.client_core]
    echo = running.enter_context(Server("echo", command, options.client_core))

    def ours(name, path):
        return running.enter_context(Server(name, [path, "127.0.0.1:0", f"127.0.0.1:{echo.port}", "600"], core))

    def theirs(name, command, template, **words):
        words["TARGET"] = echo.port
        return running.enter_context(configured(name, command, template, words, scratch / name, core))

    servers = [ours(name, path) for name, path in options.ours]
    haproxy, nginx = shutil.which("haproxy"), shutil.which("nginx")
    module = next((path for path in MODULES if os.path.exists(path)), None)
    if haproxy:
        servers.append(theirs("HAProxy", [haproxy, "-f"], "haproxy/tuned.cfg"))
    else:
        print("no HAProxy: apt-get install haproxy", file=sys.stderr)
    if nginx and module:
        servers.append(theirs("nginx", [nginx, "-c"], "nginx/stream.conf", MODULE=module))
    else:
        print("no nginx with streams: apt-get install nginx-light libnginx-mod-stream", file=sys.stderr)
    name, path = options.ours[0]
    return [*servers, ours(f"{name} (again)", path)]


def cells(text):
    found = [re.fullmatch(r"(\d+)x(\d+)", word) for word in text.split(",")]
    if not all(found) or not all(int(number) for cell in found for number in cell.groups()):
        raise argparse.ArgumentTypeError(f"{text}: not CONNECTIONSxBYTES, such as 50x128, with commas between them")
    return [tuple(map(int, cell.groups())) for cell in found]


def named(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{text}: not NAME=PATH")
    return name, pathlib.Path(path)


def arguments():
    parser = comparison.parser(__doc__, 9)
    parser.add_argument("--cells", type=cells, default=cells("50x128,50x16384,1x128"), help="(50x128,50x16384,1x128)")
    parser.add_argument("--ours", type=named, action="append", help="a program NAME=PATH instead of those that are built; repeatable")
    parser.add_argument("--annulus", type=pathlib.Path, help="the command line, instead of one that is built")
    return comparison.parse(parser)


def main():
    options = arguments()
    options.annulus = options.annulus or comparison.build("-p", "annulus-cli") / "annulus"
    options.ours = options.ours or list(comparison.built_example("proxy").items())
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as running:
        servers = start(running, options, pathlib.Path(temporary))
        for connections, length in options.cells:
            measure(servers, connections, length, options)


if __name__ == "__main__":
    main()
