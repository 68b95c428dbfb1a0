"""Checks of an echo server for streams (TCP or a Unix socket). Run by check.py."""

import contextlib
import functools
import random
import selectors
import socket
import struct

PATIENCE = 20.0  # seconds that a correct server never needs; reaching this limit is a failure
FLOOD = 1 << 26  # maximum number of bytes of a flood
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def payload(length, seed=0):
    return random.Random(seed).randbytes(length)


def connect(address):
    """Connects over TCP to a pair of host and port, or over a Unix socket to a path."""
    if isinstance(address, str):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(PATIENCE)
        stream.connect(address)
        return stream
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
        assert part, f"the server closed with {length} bytes missing"
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
    """Sends and receives concurrently, as the socket allows; returns the received bytes."""
    stream.setblocking(False)
    sent, parts, missing = 0, [], len(data)
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while missing:
            ready = selector.select(PATIENCE)
            assert ready, f"no progress with {len(data) - sent} bytes to send and {missing} to receive"
            if ready[0][1] & selectors.EVENT_WRITE:
                sent += stream.send(data[sent : sent + (1 << 20)])
                if sent == len(data):
                    selector.modify(stream, selectors.EVENT_READ)
            if ready[0][1] & selectors.EVENT_READ:
                parts.append(stream.recv(1 << 20))
                assert parts[-1], f"the server closed with {missing} bytes missing"
                missing -= len(parts[-1])
    stream.settimeout(PATIENCE)
    return b"".join(parts)


def flood(stream, most=FLOOD, piece=1 << 16):
    """Sends without reading until the socket is full; returns how many bytes of `flood_bytes` it accepted."""
    data, taken = memoryview(flood_source())[:most], 0
    stream.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while taken < most:
            taken += stream.send(data[taken : taken + piece])
    stream.settimeout(PATIENCE)
    return taken


def flood_bytes(length):
    return flood_source()[:length]


@functools.cache
def flood_source():
    """Created once, for hundreds of floods."""
    pattern = payload(1_000_003)
    return (pattern * (FLOOD // len(pattern) + 1))[:FLOOD]


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
        data = flood_bytes(FLOOD)
        assert exchange(stream, data) == data, "the echo differs"


@check
def many_tiny_writes(address):
    """A Unix socket holds a few hundred messages of any size, so they are read every hundred."""
    with connect(address) as stream:
        for turn in range(30):
            data = payload(700, turn)
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
    """Needs a server whose limit of open files is far below 200. Waiting connections are served when others close."""
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(connect(address)) for _ in range(200)]
        for stream in streams:
            stream.sendall(b"waiting")
        for stream in streams:
            expect(stream, b"waiting")
            stream.close()
