"""Checks of the proxy, in front of servers from Python's standard library. The clients are curl and plain sockets."""

import contextlib
import http.server
import socket
import tempfile
import threading

from harness import PATIENCE, Missing, ends, eventually, exactly, output, payload, reset, rest, running, tool


@contextlib.contextmanager
def target(serve):
    """A server with a thread per connection; yields its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(PATIENCE)

    def one(connection):
        connection.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError, TimeoutError), connection:
            serve(connection)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield "127.0.0.1:%d" % listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def reverse(connection):
    """Answers only once the client has ended its direction."""
    connection.sendall(rest(connection)[::-1])


def echo(connection):
    while part := connection.recv(1 << 16):
        connection.sendall(part)


def a_half_close_goes_through(path):
    with target(reverse) as to, running(path, "127.0.0.1:0", to) as proxy:
        for size in (0, 1, 1_000_000):
            data = payload(size, size)
            with proxy.connect() as client:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                assert rest(client) == data[::-1], f"{size} bytes"
            proxy.line(f": {size} bytes up, {size} bytes down, closed")


def curl_through_the_proxy(path):
    curl = tool("curl", "curl")
    with tempfile.TemporaryDirectory() as directory:
        data = payload(3_000_000, 3)
        with open(f"{directory}/file", "wb") as file:
            file.write(data)

        class Handler(http.server.SimpleHTTPRequestHandler):
            def __init__(self, *arguments):
                super().__init__(*arguments, directory=directory)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with running(path, "127.0.0.1:0", "127.0.0.1:%d" % server.server_port) as proxy:
                url = f"http://127.0.0.1:{proxy.port}/file"
                output(curl, "-sSf", "-o", f"{directory}/got", url)
                with open(f"{directory}/got", "rb") as file:
                    assert file.read() == data
            server.shutdown()


def both_directions_at_once(path):
    data = payload(5_000_000, 5)
    with target(echo) as to, running(path, "127.0.0.1:0", to) as proxy, proxy.connect() as client:
        sender = threading.Thread(target=client.sendall, args=(data,))
        sender.start()
        assert exactly(client, len(data)) == data
        sender.join()


def a_silent_connection_is_closed(path):
    with target(echo) as to, running(path, "127.0.0.1:0", to, 1) as proxy:
        with proxy.connect() as client:
            client.sendall(b"hello")
            assert exactly(client, 5) == b"hello" and ends(client)
        proxy.line(": 5 bytes up, 5 bytes down, timed out")


def traffic_one_way_keeps_a_connection(path):
    """The time-out is one second and applies to the connection: bytes in one direction keep it open."""

    def drip(connection):
        for _ in range(12):
            connection.sendall(b"x")
            threading.Event().wait(0.2)

    with target(drip) as to, running(path, "127.0.0.1:0", to, 1) as proxy, proxy.connect() as client:
        assert rest(client) == b"x" * 12


def hostile_clients(path):
    with target(echo) as to, running(path, "127.0.0.1:0", to) as proxy:
        client = proxy.connect()
        client.sendall(b"before the reset")
        exactly(client, 5)
        reset(client)
        proxy.line("16 bytes up")
        with proxy.connect() as client:
            client.sendall(b"still there")
            assert exactly(client, 11) == b"still there"
    with socket.socket() as silent:
        # Bound but not listening: it refuses connections, and the proxy cannot get the same port.
        silent.bind(("127.0.0.1", 0))
        to = "127.0.0.1:%d" % silent.getsockname()[1]
        with running(path, "127.0.0.1:0", to) as proxy, proxy.connect() as client:
            assert ends(client)
            proxy.line(": 0 bytes up, 0 bytes down", "refused")


@contextlib.contextmanager
def full_target():
    """A listener whose backlog has one place, which is taken, so that the kernel drops further connection requests; yields its address."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname(), PATIENCE):
            to = "127.0.0.1:%d" % listener.getsockname()[1]
            # In the row of a listening socket, the bytes to be read are the connections to be accepted.
            eventually(lambda: [row[4].endswith(":00000001") for row in sockets(1, to, "0A")] == [True], "the place is taken")
            yield to


def sockets(side, address, state):
    """Returns the rows of the kernel's table with this state and this address, as the local (1) or the peer's (2)."""
    port = ":%04X" % int(address.split(":")[1])
    rows = [line.split() for line in open("/proc/net/tcp")]
    return [row for row in rows if row[side].endswith(port) and row[3] == state]


def connecting_has_a_limit(path):
    with full_target() as to, running(path, "127.0.0.1:0", to) as proxy, proxy.connect() as client:
        client.sendall(b"hello")
        client.settimeout(PATIENCE)
        assert ends(client)
        proxy.line(": 0 bytes up, 0 bytes down")


def connecting(to):
    """Returns how many sockets wait for the target to accept."""
    return len(sockets(2, to, "02"))


def a_client_that_leaves_while_it_connects_is_noticed(path):
    with full_target() as to, running(path, "127.0.0.1:0", to) as proxy:
        for data, leave, how in ((b"", socket.socket.close, "aborted"), (b"", reset, "reset"), (b"hello", reset, "reset")):
            client = proxy.connect()
            name = "%s:%d" % client.getsockname()
            client.sendall(data)
            # A client that is gone before it is accepted is not mentioned.
            eventually(lambda: connecting(to) == 1, "the proxy connects")
            leave(client)
            proxy.line(name, how)
            eventually(lambda: connecting(to) == 0, "the client's place is free")


def a_reset_is_passed_on_as_one(path):
    seen = []

    def refuses(connection):
        exactly(connection, 3)
        connection.sendall(b"part")
        reset(connection)

    def remembers(connection):
        connection.sendall(b"hello")
        try:
            seen.append(rest(connection))
        except ConnectionError as error:
            seen.append(error)

    with target(refuses) as to, running(path, "127.0.0.1:0", to) as proxy, proxy.connect() as client:
        client.sendall(b"ask")
        try:
            assert False, f"{rest(client)} and an orderly end"
        except ConnectionResetError:
            pass
    with target(remembers) as to, running(path, "127.0.0.1:0", to) as proxy:
        client = proxy.connect()
        exactly(client, 5)
        reset(client)
        eventually(lambda: seen, "the target's connection ends")
        assert isinstance(seen[0], ConnectionResetError), seen


def past_its_limit_it_refuses_and_serves_the_others(path):
    with target(echo) as to, running(path, "127.0.0.1:0", to, 60, 2) as proxy:
        served = [proxy.connect(), proxy.connect()]
        for client in served:
            client.sendall(b"a place")
            assert exactly(client, 7) == b"a place"
        for _ in range(20):
            with proxy.connect() as client:
                assert ends(client)
        for client in served:
            client.sendall(b"still there")
            assert exactly(client, 11) == b"still there"
        served.pop().close()
        proxy.line("18 bytes up")
        with proxy.connect() as client:
            client.sendall(b"a free place")
            assert exactly(client, 12) == b"a free place"
        served.pop().close()


def two_shards_share_connections_and_their_limit(path):
    """The tokio version has one thread, and ignores the number."""
    with target(echo) as to, running(path, "127.0.0.1:0", to, 60, 4, 2) as proxy:
        served = [proxy.connect() for _ in range(4)]
        for number, client in enumerate(served):
            data = payload(100_000, number)
            sender = threading.Thread(target=client.sendall, args=(data,))
            sender.start()
            assert exactly(client, len(data)) == data
            sender.join()
        with proxy.connect() as client:
            assert ends(client)
        for client in served:
            client.shutdown(socket.SHUT_WR)
            assert rest(client) == b""
            client.close()
        eventually(lambda: sum(line is not None and "100000 bytes down, closed" in line for line in proxy.log) == 4, "four ends")


def an_address_of_ipv4_is_logged_as_one(path):
    if not socket.has_dualstack_ipv6():
        raise Missing("no IPv6: enable it in the kernel")
    with target(echo) as to, running(path, "[::]:0", to) as proxy:
        with proxy.connect() as client:
            address = "%s:%d" % client.getsockname()
        assert proxy.line("bytes up").startswith(f"{address}: "), proxy.log


CHECKS = [
    an_address_of_ipv4_is_logged_as_one,
    connecting_has_a_limit,
    a_client_that_leaves_while_it_connects_is_noticed,
    a_reset_is_passed_on_as_one,
    two_shards_share_connections_and_their_limit,
    past_its_limit_it_refuses_and_serves_the_others,
    a_half_close_goes_through,
    curl_through_the_proxy,
    both_directions_at_once,
    a_silent_connection_is_closed,
    traffic_one_way_keeps_a_connection,
    hostile_clients,
]
