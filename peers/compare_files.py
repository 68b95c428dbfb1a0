#!/usr/bin/env python3
"""Compares servers of static files: the example `static_files`, its twin on tokio, and nginx with `nginx/tuned.conf`.

    compare_files.py [--rounds N] [--seconds S] [--sizes KIB,...] [--connections N,...] [--server-core N] [--client-core N]

wrk is the client, with one thread. Servers and client have a core each. All servers run for the whole comparison and idle while
another is measured; in each round each is measured once, in an order that changes; nginx runs a second time as a control. Ratios are
of one round, to nginx; the table has their median, and the interval that 95 % of resampled medians lie in. CPU is that of a
server's threads and children over the slice, user and kernel, per request. wrk reads 8 KiB at a time, and is the limit for large files.

It builds what it needs, and takes nginx and wrk from PATH. Exit code: 0 measured, 1 a program failed, 2 usage, 3 a program is missing.
"""

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from compare_redis import PATIENCE, ROOT, Server, interval, pinned, unused_port, wait_for

BASELINE = "nginx"


class FileServer(Server):
    """A server of files, with the processes that it has started."""

    def pids(self, pid=None):
        pid = pid or self.process.pid
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from self.pids(int(child))
        yield pid

    def cpu_ns(self):
        tasks = [task for pid in self.pids() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self):
        # The first process of nginx ends its worker.
        self.process.terminate()
        self.process.wait()
        self.process.stderr.close()


def of_example(name, path, site, core):
    server = FileServer(name, [str(path), "127.0.0.1:0", str(site)], core)
    line = server.process.stderr.readline().decode()
    ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
    if not ready:
        raise SystemExit(f"{name} does not listen: {line}")
    server.port = int(ready[1])
    return server


def of_nginx(name, path, site, scratch, core):
    scratch.mkdir()
    port = unused_port()
    text = (ROOT / "peers/nginx/tuned.conf").read_text()
    for word, value in {"{PORT}": port, "{ROOT}": site, "{SCRATCH}": scratch}.items():
        text = text.replace(word, str(value))
    (scratch / "nginx.conf").write_text(text)
    server = FileServer(name, [path, "-c", str(scratch / "nginx.conf")], core)
    server.port = port
    wait_for(server)
    return server


def load(server, kib, connections, options):
    """Runs wrk; requests a second, and CPU of the server per request in ns."""
    words = f"wrk -t1 -c{connections} -d{options.seconds:g}s http://127.0.0.1:{server.port}/{kib}.bin"
    before = server.cpu_ns()
    run = subprocess.run(
        words.split(), preexec_fn=pinned(options.client_core), capture_output=True, text=True, timeout=PATIENCE * 5
    )
    cpu = server.cpu_ns() - before
    count, rate = re.search(r"(\d+) requests in", run.stdout), re.search(r"Requests/sec:\s+([\d.]+)", run.stdout)
    if run.returncode != 0 or not count or not rate or int(count[1]) == 0 or "Non-2xx" in run.stdout:
        raise SystemExit(f"wrk failed at {server.name}: {run.stdout}{run.stderr}")
    return {"requests_per_second": float(rate[1]), "cpu_ns_per_request": cpu / int(count[1])}


def measure(servers, kib, connections, options):
    cell = {server.name: [] for server in servers}
    for round_number in range(options.rounds + 1):
        first = round_number % len(servers)
        for server in servers[first:] + servers[:first]:
            slice_ = load(server, kib, connections, options)
            # The first round opens files and warms caches.
            if round_number > 0:
                cell[server.name].append(slice_)
    print(f"\n{kib} KiB, {connections} connections")
    print(f"{'':16}{'requests/s':>12}{'ratio':>24}{'CPU ns/req':>12}{'ratio':>24}")
    for name, measured in cell.items():
        line = f"{name:16}"
        for key in ("requests_per_second", "cpu_ns_per_request"):
            median, low, high = interval([mine[key] / base[key] for mine, base in zip(measured, cell[BASELINE])])
            value = statistics.median(slice_[key] for slice_ in measured)
            line += f"{value:12,.0f}{f'{median:.3f} [{low:.3f}, {high:.3f}]':>24}"
        print(line, flush=True)


def build():
    """Our example, built as our programs are, and its twin; their paths."""
    subprocess.run("cargo build --quiet --profile dist -p annulus --example static_files".split(), cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    twins = ROOT / "target/peers/tokio-examples"
    subprocess.run(["sh", ROOT / "peers/tokio-examples/build", twins], check=True, stdout=subprocess.DEVNULL)
    return ROOT / target / "dist/examples/static_files", twins / "static_files"


def numbers(text):
    return [int(word) for word in text.split(",")]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = sorted(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=9, help="slices of each server and cell (9)")
    parser.add_argument("--seconds", type=float, default=2.0, help="the time of a slice (2)")
    parser.add_argument("--sizes", type=numbers, default=[4, 64, 1024], help="files, in KiB (4,64,1024)")
    parser.add_argument("--connections", type=numbers, default=[50], help="(50)")
    parser.add_argument("--server-core", type=int, default=cores[0], help="the first core by default")
    parser.add_argument("--client-core", type=int, default=cores[-1], help="the last core by default")
    parser.add_argument("--ours", type=pathlib.Path, help="a program to measure instead of those that are built")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 1 or min(options.sizes + options.connections) < 1:
        parser.error("--rounds, --seconds, --sizes and --connections must be 1 or more")
    if options.server_core == options.client_core:
        parser.error(f"server and client share core {options.server_core}: name two with --server-core and --client-core")
    return options


def main():
    options = arguments()
    paths = {name: shutil.which(name) for name in ("nginx", "wrk")}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        print(f"no {' and no '.join(missing)}: apt-get install nginx-light wrk", file=sys.stderr)
        return 3
    examples = {"annulus": options.ours} if options.ours else dict(zip(("annulus", "tokio"), build()))
    servers, core = [], options.server_core
    with tempfile.TemporaryDirectory() as temporary:
        scratch = pathlib.Path(temporary)
        # The worker of nginx is another user than root.
        scratch.chmod(0o755)
        site = scratch / "site"
        site.mkdir()
        for kib in options.sizes:
            (site / f"{kib}.bin").write_bytes(os.urandom(kib * 1024))
        try:
            servers.append(of_nginx(BASELINE, paths["nginx"], site, scratch / "one", core))
            servers += [of_example(name, path, site, core) for name, path in examples.items()]
            servers.append(of_nginx("nginx (again)", paths["nginx"], site, scratch / "two", core))
            for kib in options.sizes:
                for connections in options.connections:
                    measure(servers, kib, connections, options)
        finally:
            for server in servers:
                server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
