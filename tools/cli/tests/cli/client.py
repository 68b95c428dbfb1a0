"""An independent echo client, written with the sockets of Python alone. It shares no code with annulus."""

import random
import socket
import sys
import threading

ADDRESS = (sys.argv[1], int(sys.argv[2]))
NOISE = random.Random(7)


def connect():
    sock = socket.create_connection(ADDRESS, timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def read_exactly(sock, count):
    parts = []
    while count:
        part = sock.recv(min(count, 65536))
        assert part, f"closed with {count} bytes missing"
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def one_byte():
    with connect() as sock:
        sock.sendall(b"x")
        assert read_exactly(sock, 1) == b"x"


def one_mebibyte():
    data = NOISE.randbytes(1 << 20)
    with connect() as sock:
        sender = threading.Thread(target=sock.sendall, args=(data,))
        sender.start()
        assert read_exactly(sock, len(data)) == data
        sender.join()


def half_close():
    data = NOISE.randbytes(100_000)
    with connect() as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        assert read_exactly(sock, len(data)) == data
        assert sock.recv(1) == b"", "no end after the half-close"


def many_tiny_writes():
    data = NOISE.randbytes(5000)
    with connect() as sock:
        for at in range(len(data)):
            sock.sendall(data[at:at + 1])
        assert read_exactly(sock, len(data)) == data


def ping_pong():
    with connect() as sock:
        for turn in range(200):
            data = NOISE.randbytes(1 + turn * 37 % 4000)
            sock.sendall(data)
            assert read_exactly(sock, len(data)) == data


for check in (one_byte, one_mebibyte, half_close, many_tiny_writes, ping_pong):
    check()
    print("ok", check.__name__)
