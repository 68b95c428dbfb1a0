"""What `compare_proxy.py` and `compare_redis.py` share: servers pinned to a core, slices in turn, ratios with
intervals."""

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 60.0
UNAVAILABLE = 3
LISTENING = re.compile(r"listening on 127\.0\.0\.1:(\d+)")


def pinned(core):
    return lambda: os.sched_setaffinity(0, {core})


class Server:
    """A program that runs, pinned to a core, with the processes that it has started, until the end of a `with`."""

    def __init__(self, name, command, core, port=None):
        self.name = name
        self.port = port
        self.process = subprocess.Popen(
            [str(word) for word in command],
            preexec_fn=pinned(core),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        # What it prints later is dropped.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def wait(self):
        """Returns once it listens: it says on which port, or accepts connections on the port that it was given."""
        if self.port is None:
            line = self.process.stderr.readline().decode()
            ready = LISTENING.search(line)
            if not ready:
                raise SystemExit(f"{self.name} does not listen: {line}")
            self.port = int(ready[1])
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), PATIENCE):
                return
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} has ended: {self.process.stderr.read().decode()}")
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name} does not listen on port {self.port}")
            time.sleep(0.02)

    def pids(self, pid=None):
        pid = pid or self.process.pid
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from self.pids(int(child))
        yield pid

    def cpu_ns(self):
        """The CPU time of all threads, user and kernel."""
        tasks = [task for pid in self.pids() for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def stop(self):
        # Not killed: a first process that ends by itself ends its workers.
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return unused.getsockname()[1]


def configured(name, command, template, words, scratch, core):
    """A server whose last argument is a configuration, in which words in braces are replaced; it has a new directory."""
    scratch.mkdir()
    port = unused_port()
    text = (ROOT / "peers" / template).read_text()
    for word, value in {"PORT": port, "SCRATCH": scratch, **words}.items():
        text = text.replace("{%s}" % word, str(value))
    path = scratch / pathlib.Path(template).name
    path.write_text(text)
    return Server(name, [*command, path], core, port)


def client(words, server, options):
    """Runs a client; its output, and the CPU time of the server meanwhile."""
    before = server.cpu_ns()
    run = subprocess.run(
        [str(word) for word in words],
        preexec_fn=pinned(options.client_core),
        capture_output=True,
        text=True,
        timeout=PATIENCE * 5,
    )
    cpu = server.cpu_ns() - before
    if run.returncode != 0:
        raise SystemExit(f"{words[0]} failed at {server.name}: {run.stdout}{run.stderr}")
    return run.stdout, cpu


def slices(servers, rounds, load):
    """What `load` returns for each server in each round, by name. The order changes from round to round."""
    cell = {server.name: [] for server in servers}
    for number in range(rounds):
        first = number % len(servers)
        for server in servers[first:] + servers[:first]:
            cell[server.name].append(load(server))
    return cell


def interval(ratios):
    """The median, and the interval of 95 % of the medians of resamples."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return statistics.median(ratios), medians[50], medians[1949]


def print_cell(title, cell, baseline, ratios, others=()):
    """A table: medians, for `ratios` with those to the baseline in the same round. Both are (heading, key); the others have a format, too."""
    print(f"\n{title}")
    heads = "".join(f"{heading:>12}{'ratio':>24}" for heading, _ in ratios)
    print(f"{'':22}{heads}{''.join(f'{heading:>10}' for heading, *_ in others)}")
    for name, measured in cell.items():
        line = f"{name:22}"
        for _, key in ratios:
            median, low, high = interval([mine[key] / base[key] for mine, base in zip(measured, cell[baseline])])
            value = statistics.median(slice_[key] for slice_ in measured)
            line += f"{value:12,.0f}{f'{median:.3f} [{low:.3f}, {high:.3f}]':>24}"
        for _, key, form in others:
            line += f"{statistics.median(slice_[key] for slice_ in measured):{form}}".rjust(10)
        print(line, flush=True)


def build(*packages):
    """Builds parts of the workspace as our programs are built; the directory that has them."""
    subprocess.run(["cargo", "build", "--quiet", "--profile", "dist", *packages], cwd=ROOT, check=True)
    return ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "dist"


def built_example(name):
    """An example, and its twin on tokio."""
    ours = build("-p", "annulus", "--example", name) / "examples" / name
    twins = ROOT / "target/peers/tokio-examples"
    subprocess.run(["sh", ROOT / "peers/tokio-examples/build", twins], check=True, stdout=subprocess.DEVNULL)
    return {"annulus": ours, "tokio": twins / name}


def found(names, packages):
    """The paths of programs. Without one of them nothing can be measured."""
    paths = {name: shutil.which(name) for name in names}
    missing = [name for name, path in paths.items() if path is None]
    if missing:
        print(f"no {' and no '.join(missing)}: apt-get install {packages}", file=sys.stderr)
        sys.exit(UNAVAILABLE)
    return paths


def parser(description, rounds):
    """The options that all have."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = sorted(os.sched_getaffinity(0))
    options.add_argument("--rounds", type=int, default=rounds, help=f"slices of each server and cell ({rounds})")
    options.add_argument("--seconds", type=float, default=2.0, help="the time of a slice (2)")
    options.add_argument("--server-core", type=int, default=cores[0], help="the first core by default")
    options.add_argument("--client-core", type=int, default=cores[-1], help="the last core by default")
    return options


def parse(parser):
    """The options, checked."""
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds must be 1 or more, and --seconds more than 0")
    if options.server_core == options.client_core:
        parser.error(f"server and client share core {options.server_core}: name two with --server-core and --client-core")
    return options
