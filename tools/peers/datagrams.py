"""Checks of an echo server for datagrams (UDP). Run by check.py.

Loopback loses a datagram only where a socket buffer is full, so a client here never has more outstanding than one holds.
"""

import collections
import contextlib
import socket

from streams import PATIENCE, payload

LONGEST = 65507  # bytes in a UDP datagram over IPv4
WINDOW = 32  # small datagrams that any socket buffer holds
AGAIN = 0.2  # seconds until a lost ping is sent again
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def connect(address):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.settimeout(PATIENCE)
    client.connect(address)
    return client


@contextlib.contextmanager
def connected(address, count):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(address)) for _ in range(count)]


def expect(client, sent):
    got = client.recv(LONGEST + 1)
    assert got == sent, f"{len(got)} bytes came back for {len(sent)}, or different ones"


def ping(client, data):
    client.send(data)
    expect(client, data)


def ping_until_answered(client, data):
    """Repeats a ping for a server that may still be busy with earlier datagrams: its full buffer drops new ones."""
    client.settimeout(AGAIN)
    for _ in range(int(PATIENCE / AGAIN)):
        with contextlib.suppress(TimeoutError):
            ping(client, data)
            return
    raise AssertionError(f"no answer in {PATIENCE:.0f} s")


@check
def datagrams_of_all_lengths(address):
    with connect(address) as client:
        for length in (1, 2, 128, 1000, 1472, 1473, 9000, 65506, LONGEST):
            ping(client, payload(length, length))


@check
def empty_datagrams(address):
    with connect(address) as client:
        for _ in range(10):
            ping(client, b"")
        ping(client, b"not empty")


@check
def a_hundred_clients_get_their_own(address):
    with connected(address, 100) as clients:
        for turn in range(10):
            for group in range(0, 100, WINDOW):
                some = list(enumerate(clients))[group : group + WINDOW]
                for seed, client in some:
                    client.send(payload(100, turn * 1000 + seed))
                for seed, client in some:
                    expect(client, payload(100, turn * 1000 + seed))


@check
def many_outstanding_at_one_client(address):
    with connect(address) as client:
        for turn in range(100):
            sent = [payload(1 + seed, turn * 1000 + seed) for seed in range(WINDOW)]
            for data in sent:
                client.send(data)
            got = [client.recv(LONGEST + 1) for _ in sent]
            assert collections.Counter(got) == collections.Counter(sent), "the echoes differ"


@check
def clients_that_are_gone(address):
    for seed in range(200):
        with connect(address) as client:
            client.send(payload(100, seed))
    with connect(address) as client:
        ping_until_answered(client, payload(100))


@check
def a_flood_leaves_it_alive(address):
    with connect(address) as flooder:
        for _ in range(20_000):
            with contextlib.suppress(OSError):
                flooder.send(payload(100))
    with connect(address) as client:
        ping_until_answered(client, payload(1000))
