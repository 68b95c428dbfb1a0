"""Checks of the Redis-protocol store, with redis-cli, redis-benchmark and plain sockets."""

import contextlib
import os
import re
import socket
import statistics
import subprocess
import time

from harness import PATIENCE, ends, eventually, exactly, output, payload, reset, rest, running, tool


def commands_of_redis_cli(path):
    cli = tool("redis-cli", "redis-tools")
    with running(path, "127.0.0.1:0") as store:
        ask = lambda *words: output(cli, "-p", str(store.port), *words).strip()
        expected = [
            (["PING"], "PONG"),
            (["PING", "hello"], "hello"),
            (["ECHO", "two words"], "two words"),
            (["GET", "none"], ""),
            (["SET", "a", "1"], "OK"),
            (["get", "a"], "1"),
            (["INCR", "a"], "2"),
            (["INCR", "new"], "1"),
            (["MSET", "b", "x", "c", ""], "OK"),
            (["MGET", "a", "b", "c", "none"], "2\nx"),
            (["EXISTS", "a", "b", "none", "a"], "3"),
            (["TTL", "a"], "-1"),
            (["TTL", "none"], "-2"),
            (["EXPIRE", "none", "5"], "0"),
            (["EXPIRE", "a", "1000"], "1"),
            (["SET", "a", "text"], "OK"),
            (["TTL", "a"], "-1"),
            (["DEL", "a", "b", "none"], "2"),
            (["EXISTS", "a", "b"], "0"),
            (["COMMAND"], ""),
            (["CONFIG", "GET", "save"], "save"),
            (["SET", "n", "5"], "OK"),
            (["INCRBY", "n", "-7"], "-2"),
            (["EXPIRE", "n", "-1"], "1"),
            (["EXISTS", "n"], "0"),
            (["EXPIRE", "n", "0"], "0"),
        ]
        for words, answer in expected:
            assert ask(*words) == answer, f"{words}: {ask(*words)!r}, not {answer!r}"
        for words in [["INCR", "text"], ["NONSENSE", "x"], ["GET"], ["MSET", "k"], ["SET", "k", "v", "EX", "soon"]]:
            ask("SET", "text", "text")
            assert ask(*words).startswith("ERR"), f"{words}: {ask(*words)!r}"
        for number in ["+5", "007", "-0", "", " 1", "9223372036854775807"]:
            ask("SET", "number", number)
            assert ask("INCR", "number").startswith("ERR") and ask("GET", "number") == number.strip(), number
        for time in ["0", "-1", "9223372036854775807", "+5"]:
            assert ask("SET", "text", "other", "EX", time).startswith("ERR") and ask("GET", "text") == "text", time
        assert ask("EXPIRE", "text", "9223372036854775807").startswith("ERR") and ask("GET", "text") == "text"


def lines_as_they_are_typed(path):
    cases = [
        (b'SET a "hello \\"world\\n"\r\nGET a\r\n', b'+OK\r\n$13\r\nhello "world\n\r\n'),
        (b"SET 'a b' 'it\\'s'\nGET \"a b\"\n", b"+OK\r\n$4\r\nit's\r\n"),
        (b"SET e ''\r\nGET e\r\n", b"+OK\r\n$0\r\n\r\n"),
        (b"*-1\r\n*0\r\n\r\n  PING \r\n", b"+PONG\r\n"),
    ]
    for typed, answer in cases:
        with running(path, "127.0.0.1:0") as store, store.connect() as client:
            client.sendall(typed)
            assert exactly(client, len(answer)) == answer, typed
    over = [
        (b"PING\r\nquit\r\nPING\r\n", b"+PONG\r\n+OK\r\n"),
        (b'SET a "b\r\n', b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        (b"SET a 'b'c\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n"),
        # A web page can make a browser send this.
        (b"POST / HTTP/1.1\r\n", b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n", b"-ERR unknown command 'GET', or wrong number of arguments\r\n"),
    ]
    with running(path, "127.0.0.1:0") as store:
        for typed, answer in over:
            with store.connect() as client:
                client.sendall(typed)
                got = exactly(client, len(answer))
                assert got == answer and ends(client), f"{typed}: {got}"


def resident(store):
    return int(open(f"/proc/{store.process.pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def an_answer_has_a_bound(path):
    with running(path, "127.0.0.1:0") as store, store.connect() as client:
        client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"v" * 1_000_000 + b"\r\n")
        client.sendall(b"MGET" + b" k" * 1500 + b"\r\nPING\r\n")
        answers = b"+OK\r\n-ERR the answer is too long: ask for fewer keys\r\n+PONG\r\n"
        got = exactly(client, len(answers))
        assert got == answers, got[:100]
        assert resident(store) < 200_000_000, resident(store)


def keys_end_at_their_time(path):
    cli = tool("redis-cli", "redis-tools")
    with running(path, "127.0.0.1:0") as store:
        ask = lambda *words: output(cli, "-p", str(store.port), *words).strip()
        assert ask("SET", "short", "v", "PX", "20") == "OK" and ask("SET", "long", "v", "EX", "1000") == "OK"
        assert ask("TTL", "long") in ("1000", "999", "998")
        eventually(lambda: ask("EXISTS", "short", "long") == "1", "a key with a time to live of 20 ms expires")
        assert ask("GET", "short") == "" and ask("DEL", "short") == "0" and ask("GET", "long") == "v"


def values_of_redis_cli_are_whole(path):
    cli = tool("redis-cli", "redis-tools")
    with running(path, "127.0.0.1:0") as store:
        for size in (1, 16_000, 1_000_000):
            value = payload(size, size)
            assert output(cli, "-p", str(store.port), "-x", "SET", "big", input=value) == "OK\n"
            assert output(cli, "-p", str(store.port), "GET", "big").encode() == value + b"\n"


def redis_benchmark_runs(path):
    benchmark = tool("redis-benchmark", "redis-tools")
    with running(path, "127.0.0.1:0") as store:
        for pipeline in ("1", "16"):
            tests = "ping,set,get,incr,mset"
            lines = output(benchmark, "-p", str(store.port), "-t", tests, "-n", "2000", "-P", pipeline, "--csv")
            assert len(lines.splitlines()) >= 6 and "rror" not in lines, lines


def commands_that_come_in_pieces(path):
    value = payload(3000, 1)
    commands = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3000\r\n" + value + b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n"
    answers = b"+OK\r\n$3000\r\n" + value + b"\r\n+PONG\r\n"
    with running(path, "127.0.0.1:0") as store:
        for size in (1, 7, 1000):
            with store.connect() as client:
                for start in range(0, len(commands), size):
                    client.sendall(commands[start : start + size])
                assert exactly(client, len(answers)) == answers, f"in pieces of {size}"


def many_commands_at_once(path):
    count = 20_000
    with running(path, "127.0.0.1:0") as store, store.connect() as client:
        client.sendall(b"SET k " + b"v" * 100 + b"\r\n" + b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" * count)
        answers = b"+OK\r\n" + (b"$100\r\n" + b"v" * 100 + b"\r\n") * count
        assert exactly(client, len(answers)) == answers


def large_values_in_a_row(path):
    """Each command is below the limit of 64 MiB, but both together are above it."""
    values = [payload(40_000_000, 1), payload(40_000_000, 2)]
    with running(path, "127.0.0.1:0") as store, store.connect() as client:
        for key, value in zip((b"a", b"b"), values):
            client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\n" + key + b"\r\n$40000000\r\n" + value + b"\r\n")
        client.sendall(b"*3\r\n$3\r\nGET\r\n$0\r\n\r\n$67108864\r\n")
        assert exactly(client, 10) == b"+OK\r\n+OK\r\n"
        assert rest(client).startswith(b"-ERR Protocol error: a command of more than")
    with running(path, "127.0.0.1:0") as store, store.connect() as client:
        client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$40000000\r\n" + values[0] + b"\r\nGET a\r\nPING\r\n")
        answers = b"+OK\r\n$40000000\r\n" + values[0] + b"\r\n+PONG\r\n"
        assert exactly(client, len(answers)) == answers


def hostile_clients(path):
    with running(path, "127.0.0.1:0") as store, store.connect() as good:
        for text in (b"*1\r\n$99999999999\r\n", b"*x\r\n", b"*1\r\nPING\r\n", b"*01\r\n", b"*1\r\n$-1\r\n", b"*1" + b"0" * 20):
            with store.connect() as client:
                client.sendall(text)
                answer = rest(client)
                assert answer.startswith(b"-ERR Protocol error"), f"{text}: {answer}"
        # A line without an end. The unread rest turns the end of the connection into a reset.
        with store.connect() as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"x" * 1_000_000)
            assert ends(client)
        # Half a command, followed by an orderly close, and by a reset.
        with store.connect() as client:
            client.sendall(b"*2\r\n$3\r\nGET\r\n$5\r\nab")
        client = store.connect()
        client.sendall(b"*2\r\n$3\r\nGET\r\n")
        reset(client)
        # A client that sends commands and never reads delays no other.
        with store.connect() as lazy:
            lazy.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n" + b"v" * 1_000_000 + b"\r\n")
            lazy.sendall(b"GET k\r\n" * 200)
            good.sendall(b"PING\r\n")
            assert exactly(good, 7) == b"+PONG\r\n"
            assert resident(store) < 100_000_000, f"{resident(store)} bytes for a client that does not read"
        with store.connect() as half:
            half.sendall(b"PING\r\n")
            half.shutdown(1)
            assert rest(half) == b"+PONG\r\n" and ends(half)


def past_its_limit_it_refuses_and_serves_the_others(path):
    with running(path, "127.0.0.1:0", 2) as store:
        served = [store.connect(), store.connect()]

        def answered(client):
            client.sendall(b"PING\r\n")
            return exactly(client, 5).decode()

        assert [answered(client) for client in served] == ["+PONG"] * 2
        for _ in range(20):
            with store.connect() as client:
                client.sendall(b"PING\r\n")
                assert rest(client) == b"-ERR max number of clients reached\r\n"
        for client in served:
            client.sendall(b"PING\r\n")
            assert exactly(client, 9) == b"\r\n+PONG\r\n"
        served.pop().close()

        def has_a_place():
            with store.connect() as client:
                return answered(client) == "+PONG"

        eventually(has_a_place, "a place is free")
        served.pop().close()


def clients_are_served_while_many_keys_end(path):
    """Measured in the CPU time of the store: no answer waits for a large part of the work. The client may itself be delayed on a busy
    machine, while the store goes on, so one of several attempts must succeed."""
    keys, batch, attempts = 100_000, 10_000, []
    with running(path, "127.0.0.1:0") as store, store.connect() as client:
        seconds = lambda: int(open(f"/proc/{store.process.pid}/schedstat").read().split()[0]) / 1e9

        def fill(end):
            """Sets keys that all expire at this time. Returns whether it was done by then."""
            for first in range(0, keys, batch):
                left = max(1, int(1000 * (end - time.monotonic())))
                client.sendall(b"".join(b"SET k%08d v PX %d\r\n" % (key, left) for key in range(first, first + batch)))
                assert exactly(client, 5 * batch) == b"+OK\r\n" * batch
            return time.monotonic() < end

        while len(attempts) < 5:
            ends = (time.monotonic() + allowed for allowed in (4, 16, 64))
            end = next(end for end in ends if fill(end))
            time.sleep(max(0, end - time.monotonic() - 0.2))
            waits, before = [], seconds()
            while time.monotonic() < end + 3:
                client.sendall(b"PING\r\n")
                assert exactly(client, 7) == b"+PONG\r\n"
                after = seconds()
                waits.append(after - before)
                before = after
                time.sleep(0.001)
            busy = [wait for wait in waits if wait > 3 * statistics.median(waits)]
            if len(busy) >= 10 and max(waits) < sum(waits) / 10:
                return
            attempts.append((len(busy), max(waits), sum(waits)))
    raise AssertionError(attempts)


def a_new_value_or_end_replaces_the_end(path):
    with running(path, "127.0.0.1:0") as store, store.connect() as client:

        def ask(commands, lines):
            client.sendall(commands.replace(b"; ", b"\r\n") + b"\r\n")
            answer = b""
            while answer.count(b"\r\n") < lines:
                answer += client.recv(1000)
            return answer.split(b"\r\n")[:-1]

        ask(b"SET a 1 PX 1; SET a 2; SET b 1 PX 1; DEL b; SET b 2; SET c 1 PX 1; SET c 2 EX 1000; SET d 1 EX 1000; EXPIRE d 1", 9)
        # The store looks for expired keys every second.
        time.sleep(2.1)
        assert ask(b"MGET a b c d", 8) == [b"*4", b"$1", b"2", b"$1", b"2", b"$1", b"2", b"$-1"]


class Subscriber:
    """A connection whose answers are read up to the answer to a marker, which is a PING."""

    def __init__(self, port):
        self.socket, self.markers = socket.create_connection(("127.0.0.1", port), PATIENCE), 0

    def ask(self, commands):
        """Sends commands, one per line, and returns everything up to the marker."""
        self.markers += 1
        marker = b"marker-%d" % self.markers
        self.socket.sendall(commands.replace(b"; ", b"\r\n") + b"\r\nPING " + marker + b"\r\n")
        data = bytearray()
        while not data.endswith(b"\r\n" + marker + b"\r\n"):
            part = self.socket.recv(1 << 16)
            assert part, f"disconnected after {commands}"
            data += part
        # The id of a client and the version of the server differ.
        return re.sub(rb"\$2\r\nid\r\n:\d+|\$7\r\nversion\r\n\$\d+\r\n[0-9.]+", b"", bytes(data))


SUBSCRIPTIONS = [
    ("a", b"SUBSCRIBE one two"),
    ("a", b"SUBSCRIBE one"),
    ("p", b"PUBLISH one hello; PUBLISH none x; PUBLISH two \"\""),
    ("a", b"PSUBSCRIBE o* [nt]* h?llo"),
    ("p", b"PUBLISH one both; PUBLISH nine x; PUBLISH hello x; PUBLISH hllo x; PUBLISH ten x"),
    ("a", b"GET k; SET k v; PUBLISH one x; PING; PING x"),
    ("a", b"UNSUBSCRIBE two; UNSUBSCRIBE two; UNSUBSCRIBE never"),
    ("p", b"PUBLISH two x; PUBLISH one x"),
    ("b", b"SUBSCRIBE one three"),
    ("p", b"PUBLISH one x; PUBLISH three y"),
    ("a", b"PUNSUBSCRIBE"),
    ("a", b"UNSUBSCRIBE; UNSUBSCRIBE; PUNSUBSCRIBE; GET k"),
    ("p", b"PUBLISH one x"),
    ("b", b"RESET; GET k"),
    ("p", b"PUBLISH one x"),
    ("p", b"SUBSCRIBE; PSUBSCRIBE; PUBLISH; PUBLISH one; PUBLISH a b c"),
    ("c", b"HELLO; HELLO 3; HELLO 4; GET none"),
    ("c", b"SUBSCRIBE one; PSUBSCRIBE o*; GET none; SET k v; GET k; PING"),
    ("p", b"PUBLISH one hello"),
    ("c", b"PUBLISH one self; PING; PUBLISH one again; GET k"),
    ("c", b"UNSUBSCRIBE one; UNSUBSCRIBE; PUNSUBSCRIBE; UNSUBSCRIBE"),
    ("c", b"SUBSCRIBE one; HELLO 2; GET k"),
    ("p", b"PUBLISH one x"),
    ("d", b"PSUBSCRIBE a[b-d]e a[^b-d]e a\\*e a[ *?z* [] [^ ** x[z-a]"),
    ("p", b"; ".join(b"PUBLISH " + name for name in (
        b"abe x", b"aee x", b"a*e x", b"axe x", b"a x", b"ab x", b"yz x", b"yzzy x", b"zz x", b"z x", b"[] x", b"xm x", b"x x",
    ))),
]


def answers_to_subscribers(port):
    """Returns what each step is answered with, and what has then arrived at each client."""
    clients = {name: Subscriber(port) for name in "abcdp"}
    seen = []
    try:
        for name, commands in SUBSCRIPTIONS:
            seen.append((name, commands, clients[name].ask(commands)))
            # A message that matches several patterns arrives once for each, in any order, before the answer to the marker.
            messages = lambda data: data[: max(data.rfind(b"*2\r\n$4\r\npong"), data.rfind(b"$") if b"pong" not in data else 0)]
            ordered = lambda data: sorted(messages(data).split(b"*4\r\n"))
            seen += [(other, b"", ordered(client.ask(b""))) for other, client in clients.items() if other != name]
    finally:
        for client in clients.values():
            client.socket.close()
    return seen


@contextlib.contextmanager
def redis_server():
    """Runs redis-server, without files, and returns its port."""
    server = tool("redis-server", "redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)

    def answers():
        with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), PATIENCE):
            return True

    try:
        eventually(answers, "redis-server answers")
        yield port
    finally:
        process.kill()
        process.wait()


def subscribers_are_answered_as_by_redis_server(path):
    with running(path, "127.0.0.1:0") as store, redis_server() as port:
        for ours, theirs in zip(answers_to_subscribers(store.port), answers_to_subscribers(port)):
            assert ours == theirs, f"{ours}, but redis-server: {theirs[2]}"


def many_messages_reach_all_subscribers(path):
    """Subscribers that go or do not read delay nobody."""
    benchmark = tool("redis-benchmark", "redis-tools")
    with running(path, "127.0.0.1:0") as store:
        subscribers = [Subscriber(store.port) for _ in range(50)]
        for subscriber in subscribers:
            subscriber.ask(b"SUBSCRIBE news")
        for subscriber in subscribers[:10]:
            reset(subscriber.socket)
        lines = output(benchmark, "-p", str(store.port), "-n", "2000", "-P", "16", "-c", "1", "--csv", "PUBLISH", "news", "text")
        assert "rror" not in lines, lines
        message = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\ntext\r\n"
        for subscriber in subscribers[10:]:
            got = exactly(subscriber.socket, len(message) * 2000)
            assert got == message * 2000
            subscriber.socket.close()


CHECKS = [
    subscribers_are_answered_as_by_redis_server,
    many_messages_reach_all_subscribers,
    clients_are_served_while_many_keys_end,
    a_new_value_or_end_replaces_the_end,
    lines_as_they_are_typed,
    an_answer_has_a_bound,
    past_its_limit_it_refuses_and_serves_the_others,
    commands_of_redis_cli,
    keys_end_at_their_time,
    values_of_redis_cli_are_whole,
    redis_benchmark_runs,
    commands_that_come_in_pieces,
    many_commands_at_once,
    large_values_in_a_row,
    hostile_clients,
]
