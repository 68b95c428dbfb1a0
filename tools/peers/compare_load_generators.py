#!/usr/bin/env python3
"""Compares the CPU time that load generators use: `annulus load`, wrk and oha, each against one
nginx (`nginx/tuned.conf`) that serves a file of 128 bytes.

    compare_load_generators.py [--rounds N] [--seconds S] [--loads WORDS] [--cores SERVER,CLIENT] [--oha PROGRAM] [--wrk2 PROGRAM]
                               [--json FILE] ANNULUS

nginx has one process on one core, and each generator has one thread on another. In each round the
generators run one after the other, in a changing order; annulus runs twice, the second time as a
control. nginx counts the requests of all generators in the same way. The kernel counts CPU time:
user and system, of all threads, from the start of a program to its end. The output has medians of
the rounds: CPU time per request, its ratios to wrk and oha in the same round with 95 % intervals
(bootstrap of the median), requests per second, the requests per second that a whole core would
allow (1 / CPU time per request), and the shares of their cores that the generator and nginx used.

Loads: `closed-N` is a closed loop of N connections. In `full-N` a process that never waits shares
the generator's core, so that the generator and not nginx bounds the rate. `open-R` is an open
loop of 64 connections at R requests per second. It is compared with wrk2 (giltene's fork of wrk,
whose program is also called `wrk`), and with oha, with `-q` and latencies from the due times. The
timers of both have a resolution of a millisecond, so requests that are due within the same
millisecond leave together, as with `annulus (bursts)` (`--arrivals burst:1ms`). wrk has no open
loop: it runs a closed loop with as many connections as it needs for a similar rate. A generator
that is not installed is left out and listed: apt-get install wrk nginx-light; cargo install oha;
wrk2 is built from its repository.

Exit code: 0 measured, 1 a program failed, 2 usage, 3 this machine lacks something.
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
import tempfile
import time
import urllib.request

PEERS = pathlib.Path(__file__).resolve().parent
PATIENCE = 10.0
BODY = bytes(range(33, 97)) * 2
# Connections, requests per second of an open loop, connections of wrk, and whether the core is shared with a busy process.
LOADS = {
    "closed-1": (1, None, 1, False),
    "closed-64": (64, None, 64, False),
    "closed-500": (500, None, 500, False),
    "full-64": (64, None, 64, True),
    "full-500": (500, None, 500, True),
    "open-5k": (64, 5_000, 1, False),
    "open-20k": (64, 20_000, 1, False),
    "open-100k": (64, 100_000, 64, False),
}
OURS, CONTROL, BURSTS = "annulus", "annulus (control)", "annulus (bursts)"
RESAMPLES = 2000
UNAVAILABLE = 3


def commands(options, name, url):
    """Returns the names and command lines of a load's generators, first those to compare with."""
    connections, rate, of_wrk, _ = LOADS[name]
    seconds = options.seconds
    ours = [options.annulus, "load", url, "-c", connections, "-d", seconds, "--warm-up", "0"]
    oha = [options.oha, "--no-tui", "-z", f"{seconds}s", "-c", connections]
    found = {}
    if shutil.which("wrk"):
        found["wrk"] = ["wrk", "-t1", f"-c{of_wrk}", f"-d{seconds}s", url]
    if rate is not None:
        if shutil.which(options.wrk2):
            found["wrk2"] = [options.wrk2, "-t1", f"-c{connections}", f"-d{seconds}s", f"-R{rate}", url]
        ours += ["--rate", rate]
        oha += ["-q", rate, "--latency-correction"]
        found[BURSTS] = [*ours, "--arrivals", "burst:1ms"]
    if shutil.which(options.oha):
        found["oha"] = [*oha, url]
    return {name: [str(word) for word in command] for name, command in {**found, OURS: ours, CONTROL: ours}.items()}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Nginx:
    """One process on one core."""

    def __init__(self, scratch, core):
        site = pathlib.Path(scratch) / "site"
        site.mkdir()
        (site / "128").write_bytes(BODY)
        os.chmod(scratch, 0o755)
        self.port = free_port()
        text = (PEERS / "nginx/tuned.conf").read_text()
        for word, value in {"SITE": site, "SCRATCH": scratch, "PORT": self.port}.items():
            text = text.replace("{%s}" % word, str(value))
        # The count of requests, which the bench does not need.
        text = re.sub(r"(root [^;]*;)", r"\1 location = /status { stub_status; }", text)
        path = pathlib.Path(scratch) / "configuration"
        path.write_text(text)
        pin = lambda: os.sched_setaffinity(0, {core})
        self.process = subprocess.Popen(["nginx", "-e", "stderr", "-c", path], preexec_fn=pin)
        self._wait()

    def _wait(self):
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return self.requests()
            time.sleep(0.02)
        raise SystemExit(f"nginx does not listen on {self.port}, or has no stub_status")

    def url(self, path):
        return f"http://127.0.0.1:{self.port}/{path}"

    def requests(self):
        """Returns the number of requests so far, including this one."""
        with urllib.request.urlopen(self.url("status"), timeout=PATIENCE) as answer:
            return int(re.search(r"requests\s+\d+ \d+ (\d+)", answer.read().decode())[1])

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def busy(core):
    """A process that uses as much of the core as it can get."""
    pin = lambda: os.sched_setaffinity(0, {core})
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=pin)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(command, core):
    """Runs a generator to its end; returns its CPU time."""
    pin = lambda: os.sched_setaffinity(0, {core})
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, preexec_fn=pin, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        # Status 1 of annulus means warnings about the figures, such as a busy machine.
        if process.returncode not in (0, 1):
            output.seek(0)
            raise SystemExit(f"{' '.join(command)} failed: {output.read().decode(errors='replace')[-2000:]}")
    return used.ru_utime + used.ru_stime


def measure(server, command, core):
    before, server_cpu, began = server.requests(), server.cpu(), time.monotonic()
    cpu = run(command, core)
    wall = time.monotonic() - began
    server_cpu = server.cpu() - server_cpu
    requests = server.requests() - before - 1
    if requests < 100:
        raise SystemExit(f"nginx saw {requests} requests of {' '.join(command)}")
    return {"requests": requests, "cpu_us": cpu / requests * 1e6, "rate": requests / wall, "share": cpu / wall, "server": server_cpu / wall}


def interval(ratios):
    """Returns a confidence interval of the median, by resampling."""
    source = random.Random(1)
    medians = sorted(statistics.median(source.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975)]


def report(name, results):
    connections, rate, of_wrk, is_shared = LOADS[name]
    kind = "a closed loop" if rate is None else f"an open loop at {rate} per second, wrk {of_wrk} in a closed loop"
    print(f"\n{name}: {connections} connections, {kind}{', on a core with a busy process' if is_shared else ''}")
    others = [other for other in results if other not in (OURS, CONTROL, BURSTS)]
    heads = "".join(f"{'÷ ' + other:>9}{'95 % interval':>17}" for other in others)
    print(f"{'':19}{'CPU/request':>14}{heads}{'requests/s':>12}{'of a core':>11}{'its core':>9}{'nginx':>7}")
    for program, rounds in results.items():
        middle = {key: statistics.median(row[key] for row in rounds) for key in rounds[0]}
        text = f"{program:19}{middle['cpu_us']:11.2f} µs"
        for other in others:
            ratios = [row["cpu_us"] / base["cpu_us"] for row, base in zip(rounds, results[other])]
            low, high = interval(ratios)
            text += f"{statistics.median(ratios):9.3f}{f'[{low:.3f}, {high:.3f}]':>17}"
        whole = 1e6 / middle["cpu_us"]
        print(f"{text}{middle['rate']:12.0f}{whole:11.0f}{middle['share']:9.0%}{middle['server']:7.0%}", flush=True)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annulus", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--cores", default="0,1")
    parser.add_argument("--oha", default="oha")
    parser.add_argument("--wrk2", default="wrk2")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    options.loads = options.loads.split(",")
    unknown = [name for name in options.loads if name not in LOADS]
    if unknown or options.rounds < 1 or options.seconds <= 0:
        parser.error(f"unknown loads {unknown}, or no rounds or time; loads are {', '.join(LOADS)}")
    try:
        options.cores = [int(core) for core in options.cores.split(",")]
        server, client = options.cores
    except ValueError:
        parser.error("--cores takes two numbers: the server's core and the generators' core")
    if not {server, client} <= os.sched_getaffinity(0):
        parser.error(f"cores {server} and {client} are not both among {sorted(os.sched_getaffinity(0))}")
    return options


def main():
    options = parse()
    if not shutil.which("nginx"):
        print("nginx is not installed: apt-get install nginx-light", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    for program, how in (("wrk", "apt-get install wrk"), (options.oha, "cargo install oha, and give its path with --oha"),
                         (options.wrk2, "build it from its repository, and give its path with --wrk2")):
        if not shutil.which(program):
            print(f"left out: {program}: {how}", file=sys.stderr)
    results = {}
    with tempfile.TemporaryDirectory() as scratch:
        server = Nginx(scratch, options.cores[0])
        try:
            for name in options.loads:
                generators = commands(options, name, server.url("128"))
                results[name] = {program: [] for program in generators}
                core = options.cores[1]
                with busy(core) if LOADS[name][3] else contextlib.nullcontext():
                    for _ in range(options.rounds):
                        for program in random.sample(list(generators), len(generators)):
                            results[name][program].append(measure(server, generators[program], core))
                report(name, results[name])
        finally:
            server.close()
    if options.json:
        options.json.write_text(json.dumps({"seconds": options.seconds, "results": results}, indent=1))


if __name__ == "__main__":
    main()
