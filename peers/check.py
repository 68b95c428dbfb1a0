#!/usr/bin/env python3
"""Does an echo server echo? Starts one, drives it with plain sockets, prints a line for each check.

    check.py BIN                 starts `BIN 0`, as the contract in README.md has it
    check.py COMMAND ARGS...     starts the command as given

The server says where it listens in one line on stderr. Exit code: 0 all passed, 1 a check failed, 2 usage, 3 the server
cannot run on this machine (it exited with 3).
"""

import contextlib
import random
import re
import resource
import selectors
import shutil
import socket
import struct
import subprocess
import sys

PATIENCE = 20.0  # seconds a healthy server never needs; reaching it is the failure
READY = re.compile(r"127\.0\.0\.1:(\d+)")
CHECKS = []


class Unavailable(Exception):
    """The server says that this machine lacks what it needs."""


def check(function):
    CHECKS.append(function)
    return function


def payload(length, seed=0):
    return random.Random(seed).randbytes(length)


@contextlib.contextmanager
def server(command, open_files=None):
    """Runs the server, yields its address, and demands that SIGTERM ends it."""

    def limit():
        if open_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    process = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=limit)
    try:
        yield ("127.0.0.1", ready_port(process))
        assert process.poll() is None, f"the server ended by itself with {process.returncode}"
        process.terminate()
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def ready_port(process):
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        assert selector.select(PATIENCE), f"no word from the server in {PATIENCE:.0f} s"
    line = process.stderr.readline().decode(errors="replace").strip()
    port = READY.search(line)
    if port:
        return int(port[1])
    if process.wait(PATIENCE) == 3:
        raise Unavailable(line)
    raise AssertionError(f"exit code {process.returncode}: {line}")


def connect(address):
    stream = socket.create_connection(address, PATIENCE)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


@contextlib.contextmanager
def connected(address, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(address)) for _ in range(count)]


def receive(stream, length):
    parts = []
    while length:
        part = stream.recv(min(length, 1 << 20))
        assert part, f"the server closed with {length} bytes to come"
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def expect(stream, sent, what="the echo"):
    got = receive(stream, len(sent))
    if got != sent:
        at = next(i for i, (a, b) in enumerate(zip(got, sent)) if a != b)
        raise AssertionError(f"{what} of {len(sent)} bytes differs at byte {at}")


def expect_end(stream):
    extra = stream.recv(1 << 16)
    assert not extra, f"{len(extra)} bytes too many"


def ping(stream, length=100, seed=0):
    data = payload(length, seed)
    stream.sendall(data)
    expect(stream, data)


def exchange(stream, data):
    """Sends and receives at the same time, whatever the socket takes; returns what came back."""
    stream.setblocking(False)
    sent, parts, missing = 0, [], len(data)
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while missing:
            ready = selector.select(PATIENCE)
            assert ready, f"stuck with {len(data) - sent} bytes to send and {missing} to receive"
            if ready[0][1] & selectors.EVENT_WRITE:
                sent += stream.send(data[sent : sent + (1 << 20)])
                if sent == len(data):
                    selector.modify(stream, selectors.EVENT_READ)
            if ready[0][1] & selectors.EVENT_READ:
                parts.append(stream.recv(1 << 20))
                assert parts[-1], f"the server closed with {missing} bytes to come"
                missing -= len(parts[-1])
    stream.settimeout(PATIENCE)
    return b"".join(parts)


def flood(stream, most=1 << 26, piece=1 << 16):
    """Sends without reading until the socket refuses; returns how many bytes of `flood_bytes` it took."""
    data, taken = memoryview(flood_bytes(most)), 0
    stream.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while taken < most:
            taken += stream.send(data[taken : taken + piece])
    stream.settimeout(PATIENCE)
    return taken


def flood_bytes(length):
    pattern = payload(1_000_003)
    return (pattern * (length // len(pattern) + 1))[:length]


def reset(stream):
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.close()


@check
def one_byte(address):
    with connect(address) as stream:
        for value in range(256):
            stream.sendall(bytes([value]))
            expect(stream, bytes([value]))


@check
def one_mebibyte_in_one_write(address):
    with connect(address) as stream:
        for seed in range(4):
            data = payload(1 << 20, seed)
            assert exchange(stream, data) == data, "the echo differs"


@check
def sixty_four_mebibytes(address):
    with connect(address) as stream:
        data = flood_bytes(64 << 20)
        assert exchange(stream, data) == data, "the echo differs"


@check
def many_tiny_writes(address):
    with connect(address) as stream:
        data = payload(20_000)
        for start in range(0, len(data), 7):
            stream.sendall(data[start : start + 7])
        expect(stream, data)


@check
def a_hundred_clients_of_16_kib(address):
    with connected(address, 100) as streams:
        for turn in range(5):
            for seed, stream in enumerate(streams):
                stream.sendall(payload(16384, turn * 1000 + seed))
            for seed, stream in enumerate(streams):
                expect(stream, payload(16384, turn * 1000 + seed))


@check
def half_close(address):
    for length in (0, 1, 16384, 100_000):
        with connect(address) as stream:
            data = payload(length)
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            expect(stream, data)
            expect_end(stream)


@check
def half_close_behind_a_full_socket(address):
    with connect(address) as stream:
        taken = flood(stream)
        stream.shutdown(socket.SHUT_WR)
        expect(stream, flood_bytes(taken))
        expect_end(stream)


@check
def resets(address):
    for length in (0, 1, 1 << 20):
        for _ in range(20):
            stream = connect(address)
            flood(stream, length)
            reset(stream)
    stream = connect(address)
    flood(stream)
    reset(stream)
    with connect(address) as stream:
        ping(stream)


@check
def pings_beside_peers_that_never_read(address):
    with connected(address, 20) as flooders, connect(address) as pinger:
        taken = [flood(stream) for stream in flooders]
        for seed in range(200):
            ping(pinger, 100, seed)
        for stream, length in zip(flooders, taken):
            expect(stream, flood_bytes(length), "the flood's echo")


@check
def resets_by_a_hundred_that_never_read(address):
    streams = [connect(address) for _ in range(100)]
    for stream in streams:
        flood(stream)
    for stream in streams:
        reset(stream)
    with connected(address, 100) as streams:
        for seed, stream in enumerate(streams):
            ping(stream, 16384, seed)


@check
def pings_beside_a_tiny_flood(address):
    with connect(address) as flooder, connect(address) as pinger:
        taken = flood(flooder, 1 << 20, piece=11)
        for seed in range(200):
            ping(pinger, 100, seed)
        expect(flooder, flood_bytes(taken), "the flood's echo")


@check
def connect_ping_close(address):
    for seed in range(2000):
        with connect(address) as stream:
            ping(stream, 100, seed)


@check
def five_hundred_connections(address):
    with connected(address, 500) as streams:
        for turn in range(3):
            for seed, stream in enumerate(streams):
                stream.sendall(payload(128, seed + turn))
            for seed, stream in enumerate(streams):
                expect(stream, payload(128, seed + turn))


def out_of_descriptors(address):
    """Needs a server whose open-file limit is far below 200; those left waiting are served as others leave."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(connect(address)) for _ in range(200)]
        for stream in streams:
            stream.sendall(b"waiting")
        for stream in streams:
            expect(stream, b"waiting")
            stream.close()


def report(name, run):
    """Prints the verdict on one check and returns whether it passed."""
    label = name.replace("_", " ")
    try:
        run()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as failure:
        print(f"FAILED  {label}: {failure or type(failure).__name__}", flush=True)
        return False
    print(f"ok      {label}", flush=True)
    return True


def run_with(command, function, open_files=None):
    with server(command, open_files) as address:
        function(address)


def run_all(command):
    """One server for the ordinary checks, so that each finds it as the last one left it; one with a low limit."""

    def together(address):
        failed.extend(f for f in CHECKS if not report(f.__name__, lambda f=f: f(address)))

    failed = []
    clean = report("one_server_lives_through_all", lambda: run_with(command, together))
    starved = report("out_of_descriptors", lambda: run_with(command, out_of_descriptors, open_files=64))
    return clean and starved and not failed


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip(), file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    command = arguments if len(arguments) > 1 else [arguments[0], "0"]
    if not shutil.which(command[0]):
        print(f"'{command[0]}' is not a program; build the server first and give its path", file=sys.stderr)
        return 2
    try:
        return 0 if run_all(command) else 1
    except Unavailable as reason:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
