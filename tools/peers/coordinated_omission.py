#!/usr/bin/env python3
"""Measures a server that freezes, with `annulus load` and with its own client, and compares both
with the known result.

    coordinated_omission.py ANNULUS [SECONDS]

The server echoes, but freezes for 100 ms in each second. Requests are due at equal intervals, and
those that are due during a freeze wait for its end. So p95 of the response times is 50 ms, p99 is
90 ms and p99.9 is 99 ms. Service times, which count from when a request was sent, hide nearly all
of this: each connection has only one request in flight when a freeze begins.

Exit code: 0 both agree within 5 %, and with the values within 10 %; 1 they do not; 2 usage.
"""

import json
import multiprocessing
import socket
import subprocess
import sys
import threading
import time

RATE, CLIENTS, LENGTH = 1000, 4, 64
PERIOD, FREEZE = 1.0, 0.1
EXPECTED = {"p99": 90_000.0, "p99.9": 99_000.0}  # µs


def serve(listener):
    """One thread for all connections, like a server with an event loop; it sleeps at the beginning of each second."""
    import selectors

    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select(timeout=0.005):
            phase = time.monotonic() % PERIOD
            if phase < FREEZE:
                time.sleep(FREEZE - phase)
            if key.fileobj is listener:
                stream, _ = listener.accept()
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(stream, selectors.EVENT_READ)
                continue
            received = key.fileobj.recv(65536)
            if received:
                key.fileobj.sendall(received)
            else:
                selector.unregister(key.fileobj)
                key.fileobj.close()


def client(address, number, began, seconds, found):
    """Sends at the due times, waits for each reply, and measures from the due time and from the send."""
    stream = socket.create_connection(address)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    response, service = [], []
    message = bytes(LENGTH)
    for request in range(seconds * RATE // CLIENTS):
        due = began + (request * CLIENTS + number) / RATE
        while (left := due - time.monotonic()) > 0:
            time.sleep(left)
        sent = time.monotonic()
        stream.sendall(message)
        received = 0
        while received < LENGTH:
            received += len(stream.recv(LENGTH - received))
        now = time.monotonic()
        response.append(now - due)
        service.append(now - sent)
    found.append((response, service))


def percentiles(samples):
    samples = sorted(samples)
    at = lambda share: samples[min(int(len(samples) * share), len(samples) - 1)] * 1e6
    return {"p99": at(0.99), "p99.9": at(0.999)}


def independent(address, seconds):
    found, began = [], time.monotonic() + 0.1
    threads = [
        threading.Thread(target=client, args=(address, number, began, seconds, found)) for number in range(CLIENTS)
    ]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return tuple(percentiles([time for samples in found for time in samples[side]]) for side in (0, 1))


def annulus(program, address, seconds):
    command = [program, "load", f"{address[0]}:{address[1]}", "-c", str(CLIENTS), "-l", str(LENGTH)]
    command += ["--rate", str(RATE), "-d", str(seconds), "--warm-up", "0.5", "--json", "-"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    said = said.get("summary", said)
    return said["latency_us"], said["service_us"]


def main():
    if len(sys.argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    seconds = int(sys.argv[2]) if len(sys.argv) == 3 else 10
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = multiprocessing.Process(target=serve, args=(listener,), daemon=True)
    server.start()
    try:
        address = listener.getsockname()
        own, other = annulus(sys.argv[1], address, seconds), independent(address, seconds)
    finally:
        server.terminate()
    good = True
    print(f"{'µs':<8}{'must be':>10}{'annulus':>10}{'Python':>10}{'ratio':>8}   service: annulus, Python")
    for name, value in EXPECTED.items():
        ours, theirs = own[0][name], other[0][name]
        good &= abs(ours / theirs - 1) <= 0.05 and abs(ours / value - 1) <= 0.1
        services = f"{own[1][name]:.0f}, {other[1][name]:.0f}"
        print(f"{name:<8}{value:>10.0f}{ours:>10.0f}{theirs:>10.0f}{ours / theirs:>8.3f}   {services}")
    print("ok" if good else "no: they differ by more than 5 %, or from the known result by more than 10 %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
