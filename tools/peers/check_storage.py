#!/usr/bin/env python3
"""Checks the contenders of `bench reads`, `bench kv` and `bench log` in a directory: gives each of them jobs, compares the
replies of the servers with the file, in each mode, and appends records to the logs.

    check_storage.py DIRECTORY

Exit code: 0 all passed, 1 one failed, 2 usage, 3 none can run on this machine (each exited with 3).
"""

import json
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import zlib

MODES = {
    "annulus": [[], ["epoll"], ["shards"]],
    "tokio": [[], ["fs"]],
    "storage-liburing": [[], ["turn"], ["fixed"], ["fixed-file"], ["fixed-buffers"]],
}
ONLY_SERVER = ["shards"]
NO_SERVER = ("threads", "storage-liburing")
NO_LOG = ("annulus", "monoio", "storage-liburing")
SERVICES = ("direct-1", "direct-4", "warm-1", "warm-4")
JOBS = ("direct 1 0.05", "cold 4 0.05", "warm 32 0.05", "direct 32 0.05")
BLOCK, BLOCKS = 4096, 1024
PATIENCE = 60  # seconds; reaching it is the failure
UNAVAILABLE = 3


def is_answer(line):
    answer = json.loads(line)
    times = [answer[name] for name in ("p50_us", "p99_us", "p99_9_us")]
    return all(answer[name] > 0 for name in ("operations", "ns", "cpu_ns")) and 0 < times[0] <= times[1] <= times[2]


def check_reads(program, mode, site):
    """Returns why a contender fails, or None, and whether this machine has what it needs."""
    asked = "".join(f"{job}\n" for job in JOBS)
    command = [program, "reads", site, *mode]
    said = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=PATIENCE)
    answers = said.stdout.splitlines()
    good = said.returncode == 0 and len(answers) == len(JOBS) and all(map(is_answer, answers))
    return None if good else str(said), said.returncode != UNAVAILABLE


def received(stream):
    """Returns the next block, or less at the end of the stream."""
    got = b""
    while len(got) < BLOCK and (more := stream.recv(BLOCK - len(got))):
        got += more
    return got


def replies(address, content):
    """Returns what is wrong with the server's replies, or None."""
    with socket.create_connection(address, PATIENCE) as stream:
        stream.settimeout(PATIENCE)
        wanted = [0, 1, BLOCKS - 1, BLOCKS + 5, 0xFFFFFFFF]
        stream.sendall(b"".join(b"%08x" % number for number in wanted))
        for number in wanted:
            start = number % BLOCKS * BLOCK
            got = received(stream)
            if got != content[start : start + BLOCK]:
                return f"block {number}: {len(got)} bytes that are not those of the file"
    return None


def stored(offset, producer, sequence, payload):
    """Returns the bytes of a record in a segment."""
    rest = struct.pack("<IQQ", len(payload), producer, sequence) + payload
    return struct.pack("<I", zlib.crc32(struct.pack("<Q", offset) + rest)) + rest


def appended(address, directory):
    """Returns what is wrong with a log in this directory, or None."""
    records = [(7, 1, b"a" * 5000), (7, 2, b""), (8, 1, b"b\n"), (7, 2, b"again"), (8, 5, b"early")]
    wanted = b"OK 7 1\nOK 7 2\nOK 8 1\nOK 7 2\nERR 8 5 comes too early; send 2\n"
    with socket.create_connection(address, PATIENCE) as stream:
        stream.settimeout(PATIENCE)
        request = b"".join(b"APPEND %d %d %d\n%s" % (*names, len(text), text) for *names, text in records)
        # In two pieces, so that a request is incomplete.
        stream.sendall(request[:3000])
        stream.sendall(request[3000:])
        got = b""
        while len(got) < len(wanted) and (more := stream.recv(BLOCK)):
            got += more
    content = b"".join(segment.read_bytes() for segment in pathlib.Path(directory).iterdir())
    # The others are a repeated one and one that comes too early.
    expected = b"".join(stored(offset, *record) for offset, record in enumerate(records[:3]))
    if got != wanted:
        return f"answers {got}, not {wanted}"
    if content != expected:
        return f"a segment of {len(content)} bytes that are not the {len(expected)} of the records"
    return None


def check_kv(program, mode, site, service, content):
    """Returns why a server fails, or None, and whether this machine has what it needs."""
    return check_server([program, "kv", "0", site, service, *mode], lambda address: replies(address, content))


def check_log(program, directory):
    """Returns why a log fails, or None, and whether this machine has what it needs."""
    os.mkdir(directory)
    return check_server([program, "log", "0", directory], lambda address: appended(address, directory))


def check_server(command, check):
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = server.stderr.readline()
        ready = re.search(r"listening on (127\.0\.0\.1):(\d+)", line)
        if not ready:
            server.wait(PATIENCE)
            why = line.strip() or f"no line, and exit code {server.returncode}"
            return why, server.returncode != UNAVAILABLE
        return check((ready[1], int(ready[2]))), True
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    programs = sorted(path for path in pathlib.Path(sys.argv[1]).iterdir() if os.access(path, os.X_OK) and path.is_file())
    content, could_run, failed = os.urandom(BLOCK * BLOCKS), False, not programs
    # Not in memory: not every file system there has direct reads.
    with tempfile.TemporaryDirectory(dir=sys.argv[1]) as site:
        for name in ("cold", "warm"):
            pathlib.Path(site, name).write_bytes(content)
        for program in programs:
            for mode in MODES.get(program.name, [[]]):
                checks = [] if mode == ONLY_SERVER else [("reads", check_reads(program, mode, site))]
                if program.name not in NO_SERVER:
                    checks += [(each, check_kv(program, mode, site, each, content)) for each in SERVICES]
                if program.name not in NO_LOG and not mode:
                    checks.append(("log", check_log(program, os.path.join(site, program.name))))
                for what, (why, can_run) in checks:
                    could_run |= can_run
                    failed |= can_run and why is not None
                    print(f"{program.name} {' '.join(mode)} {what}: {'ok' if why is None else why}")
    if failed:
        return 1
    return 0 if could_run else UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
