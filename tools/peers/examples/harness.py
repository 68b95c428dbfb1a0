"""Helpers shared by the checks of the examples: a running program, existing clients, and plain sockets."""

import contextlib
import os
import random
import re
import selectors
import shutil
import signal
import socket
import subprocess
import threading
import time

# How long to wait for anything before a check fails: far longer than expected.
PATIENCE = 30.0

LISTENING = re.compile(r"listening on (?:udp://)?(?:127\.0\.0\.1|\[::\]):(\d+)")


class Missing(Exception):
    """A tool is missing. The text says how to install it."""


class Other(Missing):
    """Another tool has the same name, so the right one cannot be installed."""


def tool(name, package):
    """Returns the path of an existing client program."""
    path = shutil.which(name)
    if path is None:
        raise Missing(f"no {name}: apt-get install {package}")
    return path


def output(*command, **options):
    """Returns the output of a client, which must succeed."""
    run = subprocess.run(command, capture_output=True, timeout=PATIENCE, **options)
    assert run.returncode == 0, f"{command} ended with {run.returncode}: {run.stderr.decode(errors='replace')}"
    return run.stdout.decode(errors="replace")


class Program:
    """A running example: `port` is the port that it listens on, `log` the lines of its standard error."""

    def __init__(self, process):
        self.process, self.log, self.port = process, [], None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        line = self.line("listening on")
        self.port = int(LISTENING.search(line)[1])

    def _read(self):
        for line in self.process.stderr:
            with self._changed:
                self.log.append(line.decode(errors="replace").rstrip())
                self._changed.notify_all()
        with self._changed:
            self.log.append(None)
            self._changed.notify_all()

    def line(self, *parts):
        """Waits for a log line that contains all these parts."""
        match = lambda: next((line for line in self.log if line and all(part in line for part in parts)), None)
        with self._changed:
            ended = self._changed.wait_for(lambda: match() or None in self.log, PATIENCE)
            assert ended and match(), f"no line with {parts} in {self.log}"
            return match()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def signal(self, which=signal.SIGTERM):
        self.process.send_signal(which)

    def ended(self):
        """Waits for the end of the program and returns its exit status, negative for a signal."""
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def running(path, *arguments, **options):
    """Runs an example, and ends it afterwards. It must not end by itself, unless the check waits for that."""
    process = subprocess.Popen([path, *map(str, arguments)], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, **options)
    try:
        program = Program(process)
        yield program
        if process.returncode is None:
            assert process.poll() is None, f"it exited by itself with status {process.returncode}: {program.log}"
    finally:
        process.kill()
        process.wait()


def exactly(connection, length):
    """Returns this many bytes, or fewer at the end of the stream."""
    data = bytearray()
    while len(data) < length:
        part = connection.recv(min(length - len(data), 1 << 16))
        if not part:
            break
        data += part
    return bytes(data)


def rest(connection):
    """Returns everything up to the end of the stream."""
    data = bytearray()
    while part := connection.recv(1 << 16):
        data += part
    return bytes(data)


def ends(connection):
    """Returns whether the peer ends the connection, with an orderly end or a reset."""
    try:
        rest(connection)
        return True
    except ConnectionError:
        return True


def reset(connection):
    """Closes abruptly, so that the peer sees a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


def payload(length, seed):
    """Returns text that differs by seed and position."""
    return random.Random(seed).randbytes(length // 2 + 1).hex().encode()[:length]


def eventually(condition, what):
    """Waits until a condition holds, for actions that a program does not report."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
        time.sleep(0.01)
