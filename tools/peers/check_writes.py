#!/usr/bin/env python3
"""Checks servers of small writes: starts each program in each of its services, and talks to it as the loads do.

    check_writes.py PROGRAM|DIRECTORY

Exit code: 0 all passed, 1 one failed, 2 usage, 3 it cannot run on this machine.
"""

import pathlib
import re
import socket
import struct
import subprocess
import sys

SERVICES = ("fan-out", "fan-out-gathering", "fan-out-group", "fan-out-shards", "pieces", "pieces-gathering")
DRIVERS = {"annulus": ("uring", "epoll")}
SUBSCRIBERS = 20
MESSAGES = 200
PATIENCE = 60  # seconds; reaching it is the failure
USAGE, UNAVAILABLE = 2, 3


def connect(port, first=b""):
    """Returns a connection that has announced what it is."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.sendall(first)
    if received(connection, len(first)) != first:
        raise ValueError(f"{first} is not answered by itself")
    return connection


def received(connection, count):
    """Receives this many bytes, or fewer before the end of the stream."""
    parts = []
    while count and (part := connection.recv(count)):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def check_fan_out(port):
    """Each subscriber gets every message unchanged and in order, even if others have gone."""
    subscribers = [connect(port, b"S") for _ in range(SUBSCRIBERS)]
    gone = [connect(port, b"S") for _ in range(SUBSCRIBERS)]
    for connection in gone[::2]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for connection in gone:
        connection.close()
    publisher = connect(port, b"P")
    messages = [struct.pack("<I", 4 + number) + bytes([number % 251]) * number for number in range(MESSAGES)]
    whole = b"".join(messages)
    for start in range(0, len(whole), 1001):
        publisher.sendall(whole[start : start + 1001])
    for connection in subscribers:
        if received(connection, len(whole)) != whole:
            raise ValueError("a subscriber received other bytes")
    publisher.sendall(messages[9][:7])
    publisher.close()
    late = connect(port, b"P")
    late.sendall(messages[5])
    for connection in subscribers:
        if received(connection, len(messages[5])) != messages[5]:
            raise ValueError("after a publisher that died within a message, a subscriber received other bytes")


def check_pieces(port):
    """Each request has its reply, whether requests arrive alone, together or in parts."""
    connection = connect(port)
    for pieces, length in ((1, 4096), (4, 4096), (16, 4096), (1, 128)):
        request = b"%02d %04d\n" % (pieces, length)
        for parts in ([request], [request[:3], request[3:]], [request * 50]):
            for part in parts:
                connection.sendall(part)
            expected = length * sum(map(len, parts)) // len(request)
            if received(connection, expected) != b"x" * expected:
                raise ValueError(f"{pieces} pieces of {length} bytes: another reply")


def check_nats(port):
    """Each subscriber of a NATS server gets every message in order."""
    subscribers = [socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) for _ in range(SUBSCRIBERS)]
    publisher = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    for connection in [*subscribers, publisher]:
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB f 1\r\nPING\r\n')
        answer = b""
        while not answer.endswith(b"PONG\r\n"):
            answer += received(connection, 1) or exit_early(answer)
    texts = [b"x" * number for number in range(MESSAGES)]
    publisher.sendall(b"".join(b"PUB f %d\r\n%s\r\n" % (len(text), text) for text in texts))
    whole = b"".join(b"MSG f 1 %d\r\n%s\r\n" % (len(text), text) for text in texts)
    for connection in subscribers:
        if received(connection, len(whole)) != whole:
            raise ValueError("a subscriber received other bytes")


def exit_early(answer):
    """Reports a connection that ended before its answer was complete."""
    raise ValueError(f"the connection ended after {answer}")


def check(program, service, driver):
    """Returns why a server fails, or None; False if it has no such service, and True if it cannot run here."""
    variables = {"ANNULUS_DRIVER": driver} if driver else None
    server = subprocess.Popen([program, "0", service], stderr=subprocess.PIPE, text=True, env=variables)
    try:
        line = server.stderr.readline()
        ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
        if not ready:
            code = server.wait(PATIENCE)
            return {USAGE: False, UNAVAILABLE: True}.get(code, line.strip())
        if program.name == "nats-server":
            check_nats(int(ready[1]))
        else:
            (check_fan_out if service.startswith("fan-out") else check_pieces)(int(ready[1]))
        return None
    except (OSError, ValueError) as error:
        return str(error)
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return USAGE
    path = pathlib.Path(sys.argv[1])
    programs = sorted(path.iterdir()) if path.is_dir() else [path]
    failed, available = not programs, True
    for program in programs:
        has_service = False
        for service in SERVICES:
            for driver in DRIVERS.get(program.name, (None,)):
                why = check(program, service, driver)
                if why is False:
                    continue
                has_service = True
                text = "ok" if why is None else "no: it cannot run here" if why is True else f"no: {why}"
                print(" ".join([program.name, service, *filter(None, [driver])]), text)
                failed |= isinstance(why, str)
                available &= why is not True
        if not has_service:
            print(f"{program.name} no: it has none of the services {', '.join(SERVICES)}")
            failed = True
    return 1 if failed else 0 if available else UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main())
