#!/usr/bin/env python3
"""Checks the servers of the comparisons of programs in a directory: starts each in each of its
modes, and makes the requests of the loads.

    check_programs.py DIRECTORY

Requests are made with curl (Debian: curl). Exit code: 0 all passed, 1 one failed, 2 usage, 3 it
cannot run on this machine.
"""

import pathlib
import re
import shutil
import subprocess
import sys

MODES = {"annulus": [["uring"], ["epoll"], ["guest"], ["guest-tasks"]], "shards": [["uring"], ["epoll"]]}
SERVICES = {
    "http1": ("http", "--http1.1"),
    "http2": ("http", "--http2-prior-knowledge"),
    "https1": ("https", "--http1.1"),
    "https2": ("https", "--http2"),
}
HTTP1_ONLY = {"annulus": [["uring-serve"]]}
WITHOUT_TLS = ("monoio", "compio", "multi-thread", "shards")
ANSWERS = {"/": b"hello\n", "/16k": b"x" * 16384}
PATIENCE = 60  # seconds; reaching this limit is a failure
UNAVAILABLE = 3


def answers(address, service):
    """Returns what is wrong with the server's answers, or None."""
    scheme, version = SERVICES[service]
    # Certificates are created when a server starts.
    curl = ["curl", "--silent", "--fail", "--insecure", "--max-time", "20", version]
    for path, body in ANSWERS.items():
        run = subprocess.run([*curl, f"{scheme}://{address}{path}"], capture_output=True, timeout=PATIENCE)
        if run.returncode != 0 or run.stdout != body:
            return f"{path}: curl {run.returncode}, {len(run.stdout)} bytes"
    missing = subprocess.run([*curl, f"{scheme}://{address}/none"], capture_output=True, timeout=PATIENCE)
    return None if missing.returncode == 22 else f"/none: curl {missing.returncode}"


def check(program, service, mode):
    """Returns why a server fails, or None, and whether this machine has what it needs."""
    server = subprocess.Popen([program, "0", service, *mode], stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        ready = re.search(r"listening on (127\.0\.0\.1:\d+)", line)
        if not ready:
            server.wait(PATIENCE)
            return line.strip(), server.returncode != UNAVAILABLE
        return answers(ready[1], service), True
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("curl"):
        print("no curl: apt-get install curl", file=sys.stderr)
        return UNAVAILABLE
    programs = sorted(pathlib.Path(sys.argv[1]).iterdir())
    failed, available = not programs, True
    for program in programs:
        plain_only = program.name in WITHOUT_TLS
        for service in (name for name in SERVICES if not (plain_only and name.startswith("https"))):
            only = HTTP1_ONLY.get(program.name, []) if service == "http1" else []
            for mode in MODES.get(program.name, [[]]) + only:
                why, is_available = check(program, service, mode)
                print(" ".join([program.name, service, *mode]), "ok" if why is None else f"no: {why}")
                failed |= is_available and why is not None
                available &= is_available
    return 1 if failed else 0 if available else UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
