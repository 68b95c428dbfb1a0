"""Checks of the chat, with nc and plain sockets."""

import contextlib
import subprocess

from harness import PATIENCE, ends, reset, running, tool


class Client:
    """A connection read by lines."""

    def __init__(self, server):
        self.socket = server.connect()
        self.lines = self.socket.makefile("rb")
        self.name = "%s:%d" % self.socket.getsockname()

    def say(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def hears(self, speaker, text):
        line = self.lines.readline().decode()
        assert line == f"{speaker}: {text}\n", f"{line!r}, not {speaker}: {text}"

    def close(self):
        self.lines.close()
        self.socket.close()


@contextlib.contextmanager
def clients(server, count):
    """So many clients, of which each has heard all others: they have joined."""
    made = [Client(server) for _ in range(count)]
    try:
        join(made)
        yield made
    finally:
        for client in made:
            client.close()


def join(made):
    """A client joins when it is accepted, of which it is not told: each speaks until all others have heard it."""
    for speaker in made:
        waiting = {client: client.socket for client in made if client is not speaker}
        for client in waiting.values():
            client.settimeout(0.1)
        deaf = set(waiting)
        while deaf:
            speaker.say("hello")
            for client in list(deaf):
                with contextlib.suppress(TimeoutError):
                    while True:
                        data = client.socket.recv(1 << 16)
                        assert data, "disconnected"
                        if f"{speaker.name}: hello\n".encode() in data:
                            deaf.discard(client)
        drain(made)


def drain(made):
    """Reads what is left over from joining: the last word of a speaker, at each of the others."""
    for client in made:
        client.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError):
            while client.socket.recv(1 << 16):
                pass
        client.socket.settimeout(PATIENCE)
        client.lines = client.socket.makefile("rb")


def all_hear_all_in_order(path):
    with running(path, "127.0.0.1:0") as server, clients(server, 7) as made:
        for number, speaker in enumerate(made):
            for index in range(20):
                speaker.say(f"{number} says {index}")
            for listener in made:
                for index in range(20):
                    if listener is not speaker:
                        listener.hears(speaker.name, f"{number} says {index}")


def nc_takes_part(path):
    nc = tool("nc", "netcat-openbsd")
    with running(path, "127.0.0.1:0") as server, clients(server, 2) as (one, two):
        run = subprocess.run([nc, "-N", "127.0.0.1", str(server.port)], input=b"from nc\n", timeout=PATIENCE)
        assert run.returncode == 0
        lines = [client.lines.readline() for client in (one, two)]
        assert all(line.endswith(b": from nc\n") for line in lines) and lines[0] == lines[1], lines


def lines_in_pieces(path):
    with running(path, "127.0.0.1:0") as server, clients(server, 2) as (one, two):
        for byte in b"in \xc3\xa4 pieces\r\nand two at once\nthree":
            one.socket.sendall(bytes([byte]))
        one.say("")
        for text in ("in \u00e4 pieces", "and two at once", "three"):
            two.hears(one.name, text)


def hostile_clients(path):
    with running(path, "127.0.0.1:0") as server, clients(server, 3) as (one, two, silent):
        for text in (b"x" * 100_000, b"\xff\xfe not text\n"):
            with server.connect() as bad:
                with contextlib.suppress(ConnectionError):
                    bad.sendall(text)
                assert ends_after_reading(bad), text[:10]
        half = server.connect()
        half.sendall(b"half a li")
        reset(half)
        one.say("still here")
        two.hears(one.name, "still here")
        # One that does not read is disconnected, and holds up no other.
        text = "y" * 4000
        for _ in range(5000):
            one.say(text)
            two.hears(one.name, text)
        assert ends(silent.socket)


def ends_after_reading(connection):
    connection.settimeout(PATIENCE)
    return ends(connection)


CHECKS = [all_hear_all_in_order, nc_takes_part, lines_in_pieces, hostile_clients]
