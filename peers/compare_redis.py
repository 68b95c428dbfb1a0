#!/usr/bin/env python3
"""Compares stores that speak the Redis protocol: the example `redis`, its twin on tokio, and the real redis-server.

    compare_redis.py [--rounds N] [--seconds S] [--server-core N] [--client-core N] [--keys N] [--json FILE]

redis-benchmark is the client, with 50 connections, GET and SET, pipelines of 1, 16 and 64. Server and client have a core
each. All servers run for the whole comparison and idle while another is measured; in each round each is measured once, in an
order that changes; redis-server runs a second time as a control, and its ratios show what the machine adds. Ratios are of one
round, to redis-server; the table has their median, and the interval that 95 % of resampled medians lie in. CPU is that of the
server's threads over the slice, user and kernel, from /proc/PID/task/*/schedstat, per request.

It builds what it needs, and takes redis-server and redis-benchmark from PATH (Debian: redis-server, redis-tools).
Exit code: 0 measured, 1 a program failed, 2 usage, 3 a program is missing.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONNECTIONS = 50
PIPELINES = (1, 16, 64)
COMMANDS = ("set", "get")
PATIENCE = 60.0
BASELINE = "redis-server"


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


class Server:
    """A store that runs, pinned to a core."""

    def __init__(self, name, command, core):
        self.name = name
        self.process = subprocess.Popen(
            command, preexec_fn=pinned(core), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self.port = None

    def cpu_ns(self):
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def of_example(name, path, core):
    server = Server(name, [str(path), "127.0.0.1:0"], core)
    line = server.process.stderr.readline().decode()
    ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
    if not ready:
        raise SystemExit(f"{name} does not listen: {line}")
    server.port = int(ready[1])
    return server


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


def wait_for(server):
    """Returns once the server accepts connections."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", server.port), PATIENCE):
            return
        if server.process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{server.name} does not listen on port {server.port}: {server.process.stderr.read1().decode()}")
        time.sleep(0.02)


def of_redis(name, path, core):
    """redis-server without persistence, on a port that is free."""
    port = unused_port()
    words = f"--port {port} --bind 127.0.0.1 --save --appendonly no --daemonize no".split()
    words.insert(words.index("--save") + 1, "")
    server = Server(name, [path, *words], core)
    server.port = port
    wait_for(server)
    return server


def load(server, command, pipeline, requests, options):
    """Runs redis-benchmark; requests a second, CPU of the server per request in ns, and how busy server and client were."""
    words = f"redis-benchmark -h 127.0.0.1 -p {server.port} -c {CONNECTIONS} -P {pipeline} -t {command} -n {requests} --csv"
    keys = ["-r", str(options.keys)] if options.keys else []
    before, start, client = server.cpu_ns(), time.monotonic(), os.times()
    run = subprocess.run(
        words.split() + keys, preexec_fn=pinned(options.client_core), capture_output=True, text=True, timeout=PATIENCE * 5
    )
    took, used = time.monotonic() - start, os.times()
    cpu = server.cpu_ns() - before
    row = re.search(rf'"{command.upper()}","([\d.]+)"', run.stdout)
    if run.returncode != 0 or not row:
        raise SystemExit(f"redis-benchmark failed at {server.name}: {run.stdout}{run.stderr}")
    of_client = used.children_user + used.children_system - client.children_user - client.children_system
    return {
        "requests_per_second": float(row[1]),
        "cpu_ns_per_request": cpu / requests,
        "server_busy": cpu / 1e9 / took,
        "client_busy": of_client / took,
    }


def interval(ratios):
    """The median, and the interval of 95 % of the medians of resamples."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[1949]


def measure(servers, options):
    """All slices, by cell and server."""
    slices = {}
    for command in COMMANDS:
        for pipeline in PIPELINES:
            # As many requests as take about the time that was asked for.
            probe = 1000 * pipeline
            rates = [load(server, command, pipeline, probe, options)["requests_per_second"] for server in servers]
            requests = max(probe, int(statistics.median(rates) * options.seconds))
            cell = slices[command, pipeline] = {server.name: [] for server in servers}
            for round_number in range(options.rounds):
                first = round_number % len(servers)
                for server in servers[first:] + servers[:first]:
                    cell[server.name].append(load(server, command, pipeline, requests, options))
            print_cell(command, pipeline, cell)
    return slices


def print_cell(command, pipeline, cell):
    print(f"\n{command.upper()}, pipeline {pipeline}")
    print(f"{'':22}{'requests/s':>12}{'ratio':>24}{'CPU ns/req':>12}{'ratio':>24}{'server':>8}{'client':>8}")
    for name, measured in cell.items():
        line = f"{name:22}"
        for key in ("requests_per_second", "cpu_ns_per_request"):
            ratios = [mine[key] / base[key] for mine, base in zip(measured, cell[BASELINE])]
            median, low, high = interval(ratios)
            value = statistics.median(slice_[key] for slice_ in measured)
            line += f"{value:12,.0f}{f'{median:.3f} [{low:.3f}, {high:.3f}]':>24}"
        for key in ("server_busy", "client_busy"):
            line += f"{statistics.median(slice_[key] for slice_ in measured):8.0%}"
        print(line, flush=True)


def build():
    """Our example, built as our programs are, and its twin; their paths."""
    words = "cargo build --quiet --profile dist -p annulus --example redis".split()
    subprocess.run(words, cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    twins = ROOT / "target/peers/tokio-examples"
    subprocess.run(["sh", ROOT / "peers/tokio-examples/build", twins], check=True, stdout=subprocess.DEVNULL)
    return ROOT / target / "dist/examples/redis", twins / "redis"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=15, help="slices of each server and cell (15)")
    parser.add_argument("--seconds", type=float, default=2.0, help="about the time of a slice (2)")
    parser.add_argument("--server-core", type=int, default=cores[0], help="the first core by default")
    parser.add_argument("--client-core", type=int, default=cores[-1], help="the last core by default")
    parser.add_argument("--keys", type=int, default=0, help="random keys; one key by default")
    parser.add_argument("--json", type=pathlib.Path, help="write all slices there")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be above 0")
    if options.server_core == options.client_core:
        parser.error(f"server and client share core {options.server_core}: name two with --server-core and --client-core")
    return options


def main():
    options = arguments()
    paths = {name: shutil.which(name) for name in ("redis-server", "redis-benchmark")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        print(f"no {' and no '.join(missing)}: apt-get install redis-server redis-tools", file=sys.stderr)
        return 3
    ours, twin = build()
    servers, core = [], options.server_core
    try:
        servers.append(of_redis(BASELINE, paths["redis-server"], core))
        servers.append(of_example("annulus", ours, core))
        servers.append(of_example("tokio", twin, core))
        servers.append(of_redis("redis-server (again)", paths["redis-server"], core))
        slices = measure(servers, options)
    finally:
        for server in servers:
            server.stop()
    if options.json:
        cells = {f"{command} {pipeline}": cell for (command, pipeline), cell in slices.items()}
        options.json.write_text(json.dumps({"rounds": options.rounds, "cells": cells}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
