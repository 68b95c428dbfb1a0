"""Checks of the DNS forwarder, with dig and plain sockets. The upstreams are Python sockets."""

import contextlib
import socket
import threading

from harness import PATIENCE, eventually, output, running, tool

NAME = b"\7example\4test\0"
QUESTION = NAME + b"\0\1\0\1"
ANSWER = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4"


def query(identifier, question=QUESTION):
    return identifier.to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\0" + question


def question_of(message):
    return message[12 : message.index(b"\0", 12) + 5]


def answered(message, address):
    """Returns the answer to a query with this address."""
    flags = b"\x81\x80\0\1\0\1\0\0\0\0"
    return message[:2] + flags + question_of(message) + ANSWER + bytes(address)


def refused(message, code):
    """Returns the answer to a query with this code and no address."""
    return message[:2] + bytes([0x81, 0x80 | code]) + b"\0\1\0\0\0\0\0\0" + question_of(message)


@contextlib.contextmanager
def upstream(answer):
    """A server that sends each of `answer(query, source)` back; yields its address and the received queries."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    seen, over = [], threading.Event()

    def serve():
        while True:
            message, client = server.recvfrom(1 << 16)
            if over.is_set():
                return
            seen.append(message)
            for reply in answer(message, client):
                server.sendto(reply, client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield "127.0.0.1:%d" % server.getsockname()[1], seen
    finally:
        over.set()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"over", server.getsockname())
        thread.join(PATIENCE)
        server.close()


def client(forwarder):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.settimeout(PATIENCE)
    made.connect(("127.0.0.1", forwarder.port))
    return made


def dig(forwarder, *options):
    path = tool("dig", "dnsutils")
    words = ["@127.0.0.1", "-p", str(forwarder.port), "+tries=1", "+time=20", *options, "example.test"]
    return output(path, *words)


def dig_gets_an_answer(path):
    with upstream(lambda message, _: [answered(message, [1, 2, 3, 4])]) as (address, _):
        with running(path, "127.0.0.1:0", address) as forwarder:
            assert dig(forwarder, "+short").strip() == "1.2.3.4"


def clients_with_one_identifier(path):
    """Both queries have the identifier 7; upstream they and their ports must differ, and each client gets its own answer."""
    sources = []

    def answer(message, source):
        sources.append(source)
        return [answered(message, [question_of(message)[1], 0, 0, 0])]

    with upstream(answer) as (address, seen), running(path, "127.0.0.1:0", address) as forwarder:
        with client(forwarder) as one, client(forwarder) as two:
            one.send(query(7, b"\1A\0\0\1\0\1"))
            two.send(query(7, b"\1B\0\0\1\0\1"))
            for asker, name in ((one, b"A"), (two, b"B")):
                message = asker.recv(512)
                assert message[:2] == b"\0\7" and message[13:14] == name == message[-4:-3], message
        assert seen[0][:2] != seen[1][:2], "the same identifier for two queries"
        assert sources[0] != sources[1], "the same port for two queries"


def a_lost_query_goes_to_the_next_upstream(path):
    with upstream(lambda *_: []) as (silent, lost), upstream(lambda m, _: [answered(m, [5, 6, 7, 8])]) as (good, _):
        with running(path, "127.0.0.1:0", silent, good) as forwarder:
            assert dig(forwarder, "+short").strip() == "5.6.7.8" and len(lost) == 1


def a_refusing_upstream_is_passed_over(path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        # Connected to itself, the socket refuses datagrams from elsewhere and keeps its port.
        closed.bind(("127.0.0.1", 0))
        closed.connect(closed.getsockname())
        refusing = "127.0.0.1:%d" % closed.getsockname()[1]
        with upstream(lambda m, _: [answered(m, [9, 9, 9, 9])]) as (good, _):
            with running(path, "127.0.0.1:0", refusing, good) as forwarder:
                assert dig(forwarder, "+short").strip() == "9.9.9.9"


def without_an_answer_it_is_servfail(path):
    with upstream(lambda *_: []) as (silent, tried), running(path, "127.0.0.1:0", silent) as forwarder:
        assert "SERVFAIL" in dig(forwarder)
        assert len(tried) > 1 and len({message[:2] for message in tried}) == len(tried)


def hostile_datagrams(path):
    """Neither short datagrams nor answers are forwarded, and unsolicited answers reach no client."""

    def answer(message, _):
        forged = bytes([message[0] ^ 1]) + message[1:]
        other = message.replace(b"example", b"exemple")
        wrong = [message, answered(forged, [6, 6, 6, 6]), answered(other, [6, 6, 6, 6])]
        return [b"", message[:5], *wrong, answered(message, [1, 1, 1, 1])]

    with upstream(answer) as (address, seen), running(path, "127.0.0.1:0", address) as forwarder:
        with client(forwarder) as asker:
            for message in (b"", b"x", query(1)[:11], answered(query(2), [0, 0, 0, 0])):
                asker.send(message)
            asker.send(query(3))
            message = asker.recv(512)
            assert message[:2] == b"\0\3" and message[-4:] == bytes([1, 1, 1, 1]), message
        assert len(seen) == 1, seen


def asked(forwarder, identifier=1):
    with client(forwarder) as asker:
        asker.send(query(identifier))
        return asker.recv(512)


def an_upstream_that_cannot_answer_is_passed_over(path):
    for code in (1, 2, 4, 5):
        with upstream(lambda m, _: [refused(m, code)]) as (bad, tried), upstream(lambda m, _: [answered(m, [1, 2, 3, 4])]) as (good, _):
            with running(path, "127.0.0.1:0", bad, good) as forwarder:
                for number in range(5):
                    assert asked(forwarder, number)[-4:] == bytes([1, 2, 3, 4]), code
                # Unlike a silent upstream, it is asked first every time.
                assert len(tried) == 5
            with upstream(lambda m, _: [refused(m, 2)]) as (other, _), running(path, "127.0.0.1:0", bad, other) as forwarder:
                # The first answer if no upstream has a better one, to a query that each has seen once.
                tried.clear()
                assert asked(forwarder)[3] & 15 == code and len(tried) == 1


def a_refusal_without_the_question_is_passed_on(path):
    for code in (1, 2, 4, 5):
        bare = lambda m, _: [m[:2] + bytes([0x81, 0x80 | code]) + bytes(8)]
        with upstream(bare) as (bad, tried), running(path, "127.0.0.1:0", bad) as forwarder:
            # Each is an answer, so the upstream counts as good, and is asked only once per query.
            for number in range(5):
                assert asked(forwarder, number) == number.to_bytes(2, "big") + bytes([0x81, 0x80 | code]) + bytes(8)
            assert len(tried) == 5
    # Any other reply without the question is dropped, as is one with another identifier.
    useless = lambda m, _: [m[:2] + b"\x81\x80" + bytes(8), bytes([m[0] ^ 1, m[1]]) + b"\x81\x82" + bytes(8), answered(m, [1, 2, 3, 4])]
    with upstream(useless) as (address, _), running(path, "127.0.0.1:0", address) as forwarder:
        assert asked(forwarder)[-4:] == bytes([1, 2, 3, 4])


def a_name_that_is_not_there_is_an_answer(path):
    with upstream(lambda m, _: [refused(m, 3)]) as (first, _), upstream(lambda m, _: [answered(m, [1, 2, 3, 4])]) as (second, seen):
        with running(path, "127.0.0.1:0", first, second) as forwarder:
            assert asked(forwarder)[3] & 15 == 3 and not seen


def a_silent_upstream_is_asked_last_for_a_while(path):
    is_back = threading.Event()
    first = lambda m, _: [answered(m, [1, 1, 1, 1])] if is_back.is_set() else []
    with upstream(first) as (first, lost), upstream(lambda m, _: [answered(m, [2, 2, 2, 2])]) as (second, _):
        with running(path, "127.0.0.1:0", first, second) as forwarder:
            for number in range(3):
                assert asked(forwarder, number)[-1] == 2 and len(lost) == number + 1
            for number in range(20):
                assert asked(forwarder, number)[-1] == 2
            assert len(lost) == 3
            is_back.set()
            eventually(lambda: asked(forwarder)[-1] == 1, "the first is tried again")
            assert [asked(forwarder)[-1] for _ in range(5)] == [1] * 5
        is_back.clear()
        # The only upstream is asked even so.
        with running(path, "127.0.0.1:0", first) as forwarder:
            assert asked(forwarder)[3] & 15 == 2
            is_back.set()
            assert asked(forwarder)[-1] == 1


CHECKS = [
    an_upstream_that_cannot_answer_is_passed_over,
    a_refusal_without_the_question_is_passed_on,
    a_name_that_is_not_there_is_an_answer,
    a_silent_upstream_is_asked_last_for_a_while,
    dig_gets_an_answer,
    clients_with_one_identifier,
    a_lost_query_goes_to_the_next_upstream,
    a_refusing_upstream_is_passed_over,
    without_an_answer_it_is_servfail,
    hostile_datagrams,
]
