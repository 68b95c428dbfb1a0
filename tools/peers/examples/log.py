"""Checks of the durable log, with plain sockets and on real files."""

import contextlib
import pathlib
import resource
import signal
import socket
import subprocess
import tempfile

from harness import PATIENCE, ends, payload, reset, running


class Client:
    """A connection whose answers are read line by line."""

    def __init__(self, server):
        self.socket = server.connect()
        self.reader = self.socket.makefile("rb")

    def send(self, producer, sequence, record):
        self.socket.sendall(b"APPEND %d %d %d\n%s" % (producer, sequence, len(record), record))

    def append(self, producer, sequence, record):
        self.send(producer, sequence, record)
        return self.line()

    def line(self):
        return self.reader.readline().decode().rstrip("\n")

    def follow(self, offset):
        self.socket.sendall(b"FOLLOW %d\n" % offset)
        return self

    def record(self):
        """Returns the offset, producer, sequence and payload of the next record."""
        verb, *numbers = self.line().split(" ")
        assert verb == "RECORD", verb
        offset, producer, sequence, length = map(int, numbers)
        return offset, producer, sequence, self.reader.read(length)


@contextlib.contextmanager
def directory():
    with tempfile.TemporaryDirectory(prefix="annulus-log-") as name:
        yield pathlib.Path(name) / "log"


def records_survive_restarts_and_come_in_order(path):
    sent = [(offset, 1 + offset % 3, 1 + offset // 3, payload(offset * 500, offset)) for offset in range(60)]
    with directory() as log:
        for part in range(3):
            with running(path, "127.0.0.1:0", log) as server:
                client = Client(server)
                for _, producer, sequence, record in sent[part * 20 : part * 20 + 20]:
                    client.send(producer, sequence, record)
                for _, producer, sequence, _ in sent[part * 20 : part * 20 + 20]:
                    assert client.line() == f"OK {producer} {sequence}"
                follower = Client(server).follow(part)
                for record in sent[part : part * 20 + 20]:
                    assert follower.record() == record, record[:3]
                server.signal()
                assert server.ended() == 0


def a_repeated_record_is_stored_once_and_a_gap_is_refused(path):
    with directory() as log, running(path, "127.0.0.1:0", log) as server:
        client = Client(server)
        assert client.append(1, 1, b"one") == "OK 1 1"
        assert Client(server).append(1, 1, b"one") == "OK 1 1"
        assert client.append(1, 3, b"three") == "ERR 1 3 comes too early; send 2"
        assert client.append(1, 2, b"two") == "OK 1 2"
        follower = Client(server).follow(0)
        assert [follower.record()[3] for _ in range(2)] == [b"one", b"two"]
        client.append(2, 1, b"later")
        assert follower.record() == (2, 2, 1, b"later")


def a_torn_record_is_removed(path):
    with directory() as log:
        with running(path, "127.0.0.1:0", log) as server:
            client = Client(server)
            for sequence in range(1, 6):
                client.append(1, sequence, b"x" * 1000)
            server.signal()
            assert server.ended() == 0
        segment = log / f"{0:020}.log"
        content = segment.read_bytes()
        segment.write_bytes(content[:-300] + bytes(300))
        with running(path, "127.0.0.1:0", log) as server:
            server.line("1024 torn bytes are removed from")
            client = Client(server)
            assert client.append(1, 6, b"six") == "ERR 1 6 comes too early; send 5"
            assert client.append(1, 5, b"five") == "OK 1 5"
            follower = Client(server).follow(3)
            assert [follower.record()[2:] for _ in range(2)] == [(4, b"x" * 1000), (5, b"five")]


def a_full_disk_is_an_error_until_there_is_space(path):
    """A limit of the file's size takes the place of a full disk, because it needs no privileges."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))

    with directory() as log:
        # Python ignores SIGXFSZ, and so does the program, unless Python restores it.
        options = {"preexec_fn": limit, "restore_signals": False}
        with running(path, "127.0.0.1:0", log, **options) as server:
            client = Client(server)
            assert client.append(1, 1, b"x" * 4000) == "OK 1 1"
            for _ in range(2):
                answer = client.append(1, 2, b"y" * 2000)
                assert answer.startswith("ERR 1 2 was not stored (") and answer.endswith("; send it again"), answer
                assert "File too large" in answer and "RLIMIT_FSIZE" in answer, answer
            assert client.append(1, 2, b"short") == "OK 1 2"
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
            assert client.append(1, 3, b"y" * 2000) == "OK 1 3"
            follower = Client(server).follow(0)
            assert [len(follower.record()[3]) for _ in range(3)] == [4000, 5, 2000]


def hostile_clients(path):
    with directory() as log, running(path, "127.0.0.1:0", log) as server:
        for text in (b"x" * 200, b"APPEND 1 1 60001\n", b"APPEND 1 -1 1\nx", b"APPEND 1 0 1\nx", b"\xff\xfe\n", b"FOLLOW\n"):
            bad = Client(server)
            bad.socket.sendall(text)
            assert bad.line().startswith("ERR send APPEND"), text
            assert ends(bad.socket), text
        half = Client(server)
        half.socket.sendall(b"APPEND 1 1 100\nhalf a rec")
        reset(half.socket)
        assert Client(server).append(1, 1, b"whole") == "OK 1 1"
        # A consumer that leaves is noticed although no record comes.
        follower = Client(server).follow(1)
        follower.socket.shutdown(socket.SHUT_WR)
        assert ends(follower.socket)


def refused(path, log, text):
    """Starts the log a second time, or on damaged files, and checks that it fails with this text."""
    run = subprocess.run([path, "127.0.0.1:0", log], capture_output=True, timeout=PATIENCE)
    assert run.returncode == 1 and text in run.stderr.decode(), run


def a_directory_has_one_log(path):
    with directory() as log, running(path, "127.0.0.1:0", log) as server:
        client = Client(server)
        assert client.append(1, 1, b"one") == "OK 1 1"
        segment = log / f"{0:020}.log"
        # As while a record is written: a start would remove it.
        with segment.open("ab") as file:
            file.write(b"half a record")
        content = segment.read_bytes()
        refused(path, log, f"cannot lock the log in `{log}`")
        run = subprocess.run([path, f"127.0.0.1:{server.port}", log], capture_output=True, timeout=PATIENCE)
        assert run.returncode == 1 and b"in use" in run.stderr, run
        assert segment.read_bytes() == content
        assert client.append(1, 2, b"two") == "OK 1 2"
        # The lock of a log that was killed does not stay.
        server.process.kill()
        server.process.wait()
        with running(path, "127.0.0.1:0", log) as server:
            assert Client(server).follow(1).record() == (1, 1, 2, b"two")


def new_directories_are_created(path):
    with tempfile.TemporaryDirectory(prefix="annulus-log-") as name:
        with running(path, "127.0.0.1:0", "a/b/c", cwd=name) as server:
            assert Client(server).append(1, 1, b"one") == "OK 1 1"
            assert (pathlib.Path(name) / "a/b/c" / f"{0:020}.log").stat().st_size == 27


def a_consumer_is_told_why_it_gets_no_records(path):
    with directory() as log, running(path, "127.0.0.1:0", log) as server:
        client = Client(server)
        assert client.append(1, 1, b"one") == "OK 1 1" and client.append(1, 2, b"two") == "OK 1 2"
        segment = log / f"{0:020}.log"
        with segment.open("r+b") as file:
            file.seek(30)
            file.write(b"\xff\xff")
        follower = Client(server).follow(0)
        assert follower.record() == (0, 1, 1, b"one")
        text = f"`{segment}` is damaged at byte 27; restore it from a copy"
        assert follower.line() == "ERR " + text and ends(follower.socket)
        segment.rename(log / "away")
        assert Client(server).follow(0).line().startswith("ERR ")
        server.line("a consumer is disconnected", text)
        server.line("a consumer is disconnected", "No such file")


def a_second_signal_ends_a_shutdown(path):
    """A producer that does not read its answers makes the shutdown take long."""
    with directory() as log, running(path, "127.0.0.1:0", log) as server:
        lazy = server.connect()
        lazy.settimeout(1)
        try:
            while True:
                lazy.sendall(b"APPEND 1 9 0\n" * 10_000)
        except TimeoutError:
            pass  # The log has stopped reading, because nothing reads its answers.
        server.signal(signal.SIGINT)
        server.line("SIGINT: no longer accepting")
        server.signal(signal.SIGTERM)
        assert server.ended() == 128 + signal.SIGTERM
        lazy.close()


def a_damaged_segment_is_an_error(path):
    with directory() as log:
        log.mkdir()
        (log / f"{0:020}.log").write_bytes(b"no records")
        (log / f"{7:020}.log").write_bytes(b"")
        refused(path, log, f"`{log}/{0:020}.log` is damaged at byte 0; restore it from a copy")


def records_after_a_damaged_one_are_kept(path):
    """No torn batch is as long as the records after this one."""
    with directory() as log:
        with running(path, "127.0.0.1:0", log) as server:
            client = Client(server)
            for sequence in range(1, 41):
                client.send(1, sequence, b"x" * 50_000)
            assert [client.line() for _ in range(40)][-1] == "OK 1 40"
        segment = log / f"{0:020}.log"
        content = bytearray(segment.read_bytes())
        content[60_000] ^= 1
        segment.write_bytes(content)
        refused(path, log, f"`{segment}` is damaged at byte 50024; restore it from a copy")
        assert segment.read_bytes() == content


CHECKS = [
    records_survive_restarts_and_come_in_order,
    a_repeated_record_is_stored_once_and_a_gap_is_refused,
    a_torn_record_is_removed,
    a_full_disk_is_an_error_until_there_is_space,
    hostile_clients,
    a_directory_has_one_log,
    new_directories_are_created,
    a_consumer_is_told_why_it_gets_no_records,
    a_second_signal_ends_a_shutdown,
    a_damaged_segment_is_an_error,
    records_after_a_damaged_one_are_kept,
]
