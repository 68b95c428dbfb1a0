#!/usr/bin/env python3
"""Checks an echo server: starts it, uses plain sockets, prints a line per check.

    check.py BIN                 starts `BIN 0`, following the contract in README.md
    check.py COMMAND ARGS...     starts the command as given
    check.py --peer NAME BIN     everything that tools/peers/NAME says it serves, in each of its modes

The server announces its address in one line on stderr. Exit code: 0 all passed, 1 a check failed, 2 usage, 3 the server
cannot run on this machine (it exited with 3).
"""

import contextlib
import pathlib
import re
import resource
import selectors
import shutil
import subprocess
import sys
import tempfile

import datagrams
import streams
from streams import PATIENCE

READY = re.compile(r"(?P<udp>udp://)?127\.0\.0\.1:(?P<port>\d+)|unix:(?P<path>\S+)")
PEERS = pathlib.Path(__file__).resolve().parent


class Unavailable(Exception):
    """The server reports that this machine lacks a requirement."""


@contextlib.contextmanager
def server(command, open_files=None):
    """Runs the server, yields its announcement as a match of READY, and asserts that SIGTERM ends it."""

    def limit():
        if open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=limit)
    path = None
    try:
        ready = announced(process)
        path = ready["path"]
        yield ready
        assert process.poll() is None, f"the server exited by itself with status {process.returncode}"
        process.terminate()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        if path:
            pathlib.Path(path).unlink(missing_ok=True)


def announced(process):
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        assert selector.select(PATIENCE), f"no announcement from the server within {PATIENCE:.0f} s"
    line = process.stderr.readline().decode(errors="replace").strip()
    ready = READY.search(line)
    if ready:
        return ready
    if process.wait(PATIENCE) == 3:
        raise Unavailable(line)
    raise AssertionError(f"exit code {process.returncode}: {line}")


def address(ready):
    return ready["path"] or ("127.0.0.1", int(ready["port"]))


def report(name, run, known):
    """Prints the result of a check; returns whether it passed, or is known to fail and was omitted."""
    label = name.replace("_", " ")
    if label in known:
        print(f"known   {label}: {known[label]}", flush=True)
        return True
    try:
        run()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
        print(f"FAILED  {label}: {failure or type(failure).__name__}", flush=True)
        return False
    print(f"ok      {label}", flush=True)
    return True


def run_all(command, known):
    """Runs the ordinary checks against one server, each in the state that the previous one left, and for streams one more
    against a server with a low limit of open files. Returns whether all passed."""

    def together():
        with server(command) as ready:
            checks.extend(datagrams.CHECKS if ready["udp"] else streams.CHECKS)
            failed.extend(f for f in checks if not report(f.__name__, lambda f=f: f(address(ready)), known))

    def starved():
        with server(command, open_files=64) as ready:
            streams.out_of_descriptors(address(ready))

    checks, failed = [], []
    passed = report("one_server_lives_through_all", together, {})
    if checks != datagrams.CHECKS:
        passed &= report("out_of_descriptors", starved, known)
    return passed and not failed


def words(name, file):
    """Returns the lines of a file in a peer's directory; none if the file does not exist."""
    path = PEERS / name / file
    return path.read_text().splitlines() if path.is_file() else []


def run_peer(name, binary):
    """Checks every kind of address that the peer serves, and every mode over TCP. Raises Unavailable only if no run failed."""
    known = dict(line.split(": ", 1) for line in words(name, "fails"))
    with tempfile.TemporaryDirectory() as directory:
        targets = {"udp": ["udp:0"], "unix": [f"unix:{directory}/socket"]}
        runs = [["0"], *(targets[word] for word in words(name, "serves")), *(["0", mode] for mode in words(name, "modes"))]
        passed, unavailable = True, None
        for run in runs:
            try:
                passed &= run_titled([binary, *run], known)
            except Unavailable as reason:
                unavailable = reason
        if passed and unavailable:
            raise unavailable
        return passed


def run_titled(command, known):
    print(f"        {' '.join(command)}", flush=True)
    return run_all(command, known)


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    peer = arguments[1] if arguments[0] == "--peer" and len(arguments) == 3 else None
    command = arguments[2:] if peer else arguments if len(arguments) > 1 else [arguments[0], "0"]
    if not shutil.which(command[0]):
        print(f"'{command[0]}' is not a program; build the server first and give its path", file=sys.stderr)
        return 2
    try:
        passed = run_peer(peer, command[0]) if peer else run_all(command, {})
    except Unavailable as reason:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return 3
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
