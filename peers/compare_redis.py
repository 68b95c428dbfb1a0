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

import contextlib
import json
import os
import pathlib
import re
import statistics
import sys
import time

sys.dont_write_bytecode = True

import comparison
from comparison import Server, client, unused_port

CONNECTIONS = 50
PIPELINES = (1, 16, 64)
COMMANDS = ("set", "get")
BASELINE = "redis-server"
RATIOS = [("requests/s", "requests_per_second"), ("CPU ns/req", "cpu_ns_per_request")]
OTHERS = [("server", "server_busy", ".0%"), ("client", "client_busy", ".0%")]


def of_redis(name, path, core):
    """redis-server without persistence, on a port that is free."""
    port = unused_port()
    words = f"--port {port} --bind 127.0.0.1 --appendonly no --daemonize no --save".split()
    return Server(name, [path, *words, ""], core, port)


def load(server, command, pipeline, requests, options):
    """Runs redis-benchmark; requests a second, CPU of the server per request in ns, and how busy server and client were."""
    words = f"redis-benchmark -h 127.0.0.1 -p {server.port} -c {CONNECTIONS} -P {pipeline} -t {command} -n {requests} --csv"
    keys = ["-r", options.keys] if options.keys else []
    began, before = time.monotonic(), os.times()
    text, cpu = client([*words.split(), *keys], server, options)
    took, after = time.monotonic() - began, os.times()
    row = re.search(rf'"{command.upper()}","([\d.]+)"', text)
    if not row:
        raise SystemExit(f"redis-benchmark failed at {server.name}: {text}")
    of_client = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "requests_per_second": float(row[1]),
        "cpu_ns_per_request": cpu / requests,
        "server_busy": cpu / 1e9 / took,
        "client_busy": of_client / took,
    }


def measure(servers, options):
    """All slices, by cell and server."""
    cells = {}
    for command in COMMANDS:
        for pipeline in PIPELINES:
            # As many requests as take about the time that was asked for.
            probe = 1000 * pipeline
            rates = [load(server, command, pipeline, probe, options)["requests_per_second"] for server in servers]
            requests = max(probe, int(statistics.median(rates) * options.seconds))

            def once(server):
                return load(server, command, pipeline, requests, options)

            cell = cells[command, pipeline] = comparison.slices(servers, options.rounds, once)
            comparison.print_cell(f"{command.upper()}, pipeline {pipeline}", cell, BASELINE, RATIOS, OTHERS)
    return cells


def arguments():
    parser = comparison.parser(__doc__, 15)
    parser.add_argument("--keys", type=int, default=0, help="random keys; one key by default")
    parser.add_argument("--json", type=pathlib.Path, help="write all slices there")
    return comparison.parse(parser)


def main():
    options = arguments()
    paths = comparison.found(["redis-server", "redis-benchmark"], "redis-server redis-tools")
    examples, core = comparison.built_example("redis"), options.server_core
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(of_redis(BASELINE, paths["redis-server"], core))]
        for name, path in examples.items():
            servers.append(running.enter_context(Server(name, [path, "127.0.0.1:0"], core)))
        servers.append(running.enter_context(of_redis("redis-server (again)", paths["redis-server"], core)))
        measured = measure(servers, options)
    if options.json:
        cells = {f"{command} {pipeline}": cell for (command, pipeline), cell in measured.items()}
        options.json.write_text(json.dumps({"rounds": options.rounds, "cells": cells}, indent=1))


if __name__ == "__main__":
    main()
