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
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

sys.dont_write_bytecode = True

from compare_files import FileServer as Proxy
from compare_redis import PATIENCE, ROOT, interval, pinned, unused_port, wait_for

MODULES = ("/usr/lib/nginx/modules/ngx_stream_module.so", "/usr/lib64/nginx/modules/ngx_stream_module.so")
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def listening(name, command, core):
    """A program that says on which port it listens. What it prints later is dropped."""
    server = Proxy(name, [str(word) for word in command], core)
    line = server.process.stderr.readline().decode()
    ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
    if not ready:
        server.stop()
        raise SystemExit(f"{name} does not listen: {line}")
    server.port = int(ready[1])
    threading.Thread(target=server.process.stderr.read, daemon=True).start()
    return server


def configured(name, command, template, words, core, scratch):
    """A program with a configuration, in which the words in braces are replaced."""
    port = unused_port()
    text = (ROOT / "peers" / template).read_text()
    for word, value in {"PORT": port, "SCRATCH": scratch, **words}.items():
        text = text.replace("{%s}" % word, str(value))
    path = scratch / pathlib.Path(template).name
    path.write_text(text)
    server = Proxy(name, [*command, str(path)], core)
    server.port = port
    wait_for(server)
    return server


def load(server, connections, length, options):
    """Runs the client; messages a second, their p99, and CPU of the proxy per message in ns."""
    words = f"load -a 127.0.0.1:{server.port} -c {connections} -l {length} -t {options.seconds:g} --warm-up 0 --json -"
    before = server.cpu_ns()
    run = subprocess.run(
        [str(options.annulus), *words.split()],
        preexec_fn=pinned(options.client_core),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 5,
    )
    cpu = server.cpu_ns() - before
    if run.returncode != 0:
        raise SystemExit(f"the client failed at {server.name}: {run.stdout}{run.stderr}")
    told = json.loads(run.stdout)
    return {
        "cpu_ns": cpu / told["responses"],
        "per_second": told["requests_per_second"],
        "p99_us": told["latency_us"]["p99"],
    }


def measure(servers, connections, length, options):
    cell = {server.name: [] for server in servers}
    for round_number in range(options.rounds + 1):
        first = round_number % len(servers)
        for server in servers[first:] + servers[:first]:
            slice_ = load(server, connections, length, options)
            # The first round warms caches.
            if round_number > 0:
                cell[server.name].append(slice_)
    base = cell[servers[0].name]
    print(f"\n{connections} connections, {length} bytes")
    print(f"{'':16}{'CPU ns/msg':>12}{'ratio':>24}{'messages/s':>12}{'ratio':>24}{'p99 us':>10}")
    for name, measured in cell.items():
        line = f"{name:16}"
        for key in ("cpu_ns", "per_second"):
            median, low, high = interval([mine[key] / other[key] for mine, other in zip(measured, base)])
            value = statistics.median(slice_[key] for slice_ in measured)
            line += f"{value:12,.0f}{f'{median:.3f} [{low:.3f}, {high:.3f}]':>24}"
        line += f"{statistics.median(slice_['p99_us'] for slice_ in measured):10,.0f}"
        print(line, flush=True)


def build(options):
    """Builds the example, its twin and the command line, unless paths are given."""
    cargo = "cargo build --quiet --profile dist".split()
    if options.annulus is None:
        subprocess.run([*cargo, "-p", "annulus-cli"], cwd=ROOT, check=True)
        options.annulus = ROOT / TARGET / "dist/annulus"
    if not options.ours:
        subprocess.run([*cargo, "-p", "annulus", "--example", "proxy"], cwd=ROOT, check=True)
        twins = ROOT / "target/peers/tokio-examples"
        subprocess.run(["sh", ROOT / "peers/tokio-examples/build", twins], check=True, stdout=subprocess.DEVNULL)
        options.ours = [("annulus", ROOT / TARGET / "dist/examples/proxy"), ("tokio", twins / "proxy")]


def start(servers, options, scratch):
    """Starts every proxy, in front of one echo server, which is returned."""
    core = options.server_core
    command = [options.annulus, "echo", "--listen", "127.0.0.1:0", "--pin", options.client_core]
    echo = listening("echo", command, options.client_core)
    target = f"127.0.0.1:{echo.port}"
    for name, path in options.ours:
        servers.append(listening(name, [path, "127.0.0.1:0", target, "600"], core))
    haproxy, nginx = shutil.which("haproxy"), shutil.which("nginx")
    module = next((path for path in MODULES if os.path.exists(path)), None)
    if haproxy:
        words = {"TARGET": echo.port}
        servers.append(configured("HAProxy", [haproxy, "-f"], "haproxy/tuned.cfg", words, core, scratch))
    else:
        print("no HAProxy: apt-get install haproxy", file=sys.stderr)
    if nginx and module:
        words = {"TARGET": echo.port, "MODULE": module}
        servers.append(configured("nginx", [nginx, "-c"], "nginx/stream.conf", words, core, scratch))
    else:
        print("no nginx with streams: apt-get install nginx-light libnginx-mod-stream", file=sys.stderr)
    name, path = options.ours[0]
    servers.append(listening(f"{name} (again)", [path, "127.0.0.1:0", target, "600"], core))
    return echo


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=9, help="slices of each proxy and cell (9)")
    parser.add_argument("--seconds", type=float, default=2.0, help="the time of a slice (2)")
    parser.add_argument("--cells", type=cells, default=cells("50x128,50x16384,1x128"), help="(50x128,50x16384,1x128)")
    parser.add_argument("--server-core", type=int, default=cores[0], help="the first core by default")
    parser.add_argument("--client-core", type=int, default=cores[-1], help="the last core by default")
    parser.add_argument("--ours", type=named, action="append", help="a program NAME=PATH instead of those that are built; repeatable")
    parser.add_argument("--annulus", type=pathlib.Path, help="the command line, instead of one that is built")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds must be 1 or more, and --seconds more than 0")
    if options.server_core == options.client_core:
        parser.error(f"proxy and client share core {options.server_core}: name two with --server-core and --client-core")
    return options


def main():
    options = arguments()
    build(options)
    servers, echo = [], None
    with tempfile.TemporaryDirectory() as temporary:
        try:
            echo = start(servers, options, pathlib.Path(temporary))
            for connections, length in options.cells:
                measure(servers, connections, length, options)
        finally:
            for server in [*servers, *([echo] if echo else [])]:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
