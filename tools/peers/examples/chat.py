"""Checks of the chat, with nc and plain sockets."""

import contextlib
import socket
import subprocess
import time

from harness import Other, PATIENCE, ends, reset, running, tool


class Client:
    """A connection that is read line by line."""

    def __init__(self, server):
        self.socket = server.connect()
        self.data = b""
        self.name = "%s:%d" % self.socket.getsockname()

    def say(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def line(self, patience=PATIENCE):
        """Returns the next line, without its end. A part that has arrived is kept if the rest does not arrive in time."""
        self.socket.settimeout(patience)
        while b"\n" not in self.data:
            part = self.socket.recv(1 << 16)
            assert part, "disconnected"
            self.data += part
        line, self.data = self.data.split(b"\n", 1)
        return line.decode()

    def hears(self, speaker, text):
        line = self.line()
        assert line == f"{speaker}: {text}", f"{line!r}, not {speaker}: {text}"

    def has_heard(self, speaker):
        """Returns whether anything from a speaker arrives soon."""
        with contextlib.suppress(TimeoutError):
            while not self.line(0.05).startswith(speaker.name):
                pass
            return True
        return False


@contextlib.contextmanager
def clients(server, count):
    """Returns this many clients that have all joined."""
    made = [Client(server) for _ in range(count)]
    try:
        join(made)
        yield made
    finally:
        for client in made:
            client.socket.close()


def join(made):
    """Waits until the clients have joined, which the server does not report: one of them speaks
    until all others hear it, and then another one until the first hears it."""
    for speaker, listeners in ((made[0], made[1:]), (made[1], made[:1])):
        deaf, deadline = listeners, time.monotonic() + PATIENCE
        while deaf:
            assert time.monotonic() < deadline, f"{len(deaf)} clients never hear {speaker.name}"
            speaker.say("hello")
            deaf = [client for client in deaf if not client.has_heard(speaker)]
    for speaker in made:
        speaker.say("ready")
        for listener in made:
            while listener is not speaker and listener.line() != f"{speaker.name}: ready":
                pass


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
    # The programs of nmap, busybox and GNU have the same name and other options.
    described = subprocess.run([nc, "-h"], capture_output=True, timeout=PATIENCE)
    if b"-N" not in described.stdout + described.stderr:
        raise Other(f"{nc} is not OpenBSD's, because it lacks -N: apt-get install netcat-openbsd")
    with running(path, "127.0.0.1:0") as server, clients(server, 2) as (one, two):
        run = subprocess.run([nc, "-N", "127.0.0.1", str(server.port)], input=b"from nc\n", timeout=PATIENCE)
        assert run.returncode == 0
        lines = [client.line() for client in (one, two)]
        assert all(line.endswith(": from nc") for line in lines) and lines[0] == lines[1], lines


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
                assert ends(bad), text[:10]
        half = server.connect()
        half.sendall(b"half a li")
        reset(half)
        one.say("still here")
        two.hears(one.name, "still here")
        # A client that does not read is disconnected, and delays no other. It cannot read its end, so that is seen in the table of sockets.
        text = "y" * 4000
        for _ in range(5000):
            one.say(text)
            two.hears(one.name, text)
        deadline = time.monotonic() + PATIENCE
        while is_connected(silent):
            assert time.monotonic() < deadline, "a client that never reads is not disconnected"
            time.sleep(0.05)


def is_connected(client):
    """Returns whether the kernel has seen neither an end nor a reset: TCP_INFO begins with the state, and 1 means established."""
    return client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == 1


CHECKS = [all_hear_all_in_order, nc_takes_part, lines_in_pieces, hostile_clients]
