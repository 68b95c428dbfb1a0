"""Checks of the graceful shutdown, with plain sockets and signals."""

import signal
import socket

from harness import ends, exactly, reset, rest, running


def lines_are_answered(path):
    with running(path, "127.0.0.1:0", 5) as server, server.connect() as client:
        client.sendall(b"one\ntw")
        assert exactly(client, 4) == b"ONE\n"
        client.sendall(b"o\n")
        client.shutdown(socket.SHUT_WR)
        assert rest(client) == b"TWO\n"


def a_signal_lets_work_finish(path):
    for which, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "SIGINT")):
        with running(path, "127.0.0.1:0", 25) as server:
            with server.connect() as idle, server.connect() as busy, server.connect() as half:
                # Once the first line is answered, the server works on the second.
                for client, lines in ((idle, b"first\n"), (half, b"first\nhal"), (busy, b"first\nanswer me\n")):
                    client.sendall(lines)
                for client in (idle, half, busy):
                    assert exactly(client, 6) == b"FIRST\n"
                server.signal(which)
                server.line(name, "no longer accepting")
                assert rest(busy) == b"ANSWER ME\n" and ends(idle) and ends(half)
                server.line("all connections have ended")
                assert server.ended() == 0
                refused(server.port)


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionError:
        return
    raise AssertionError("it still accepts")


def stragglers_are_aborted(path):
    with running(path, "127.0.0.1:0", 0) as server, server.connect() as client:
        client.sendall(b"a\ntoo late\n")
        assert exactly(client, 2) == b"A\n"
        server.signal()
        server.line("1 connections are aborted")
        assert ends(client) and server.ended() == 0


def hostile_clients(path):
    with running(path, "127.0.0.1:0", 25) as server:
        with server.connect() as long:
            long.sendall(b"x" * 5000)
            assert ends(long)
        client = server.connect()
        client.sendall(b"half a li")
        reset(client)
        with server.connect() as good, server.connect() as silent:
            good.sendall(b"good\n")
            assert exactly(good, 5) == b"GOOD\n"
            server.signal()
            assert server.ended() == 0 and rest(silent) == b""


CHECKS = [lines_are_answered, a_signal_lets_work_finish, stragglers_are_aborted, hostile_clients]
