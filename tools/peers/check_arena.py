#!/usr/bin/env python3
"""Checks servers of HttpArena's profiles of HTTP/1.1, by the requests of its scripts/validate.sh and
by further ones, against a process instead of a container.

    check_arena.py PROGRAM...

A directory is all programs in it. `PROGRAM 127.0.0.1:0` must announce its address. The profiles of
our programs are in arena/NAME/meta.json. Others have baseline and pipelined, and may fail the checks
in httparena/fails. Exit code: 0 all passed, 1 one failed, 2 usage.
"""

import gzip
import json
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

PATIENCE = 30  # seconds; reaching this limit is a failure
PAUSE = 0.03  # seconds between fragments; the answer must not depend on it
ARENA = pathlib.Path(__file__).parents[2] / "arena"
FAILS = pathlib.Path(__file__).parent / "httparena" / "fails"
OURS = re.compile(r"^(httparena-)?(annulus.*)$")
FILES = {"reset.css": ["text/css"], "app.js": ["application/javascript", "text/javascript"], "manifest.json": ["application/json"]}


def number():
    return random.randint(100, 999)


def request(target, method="GET", body=b"", headers=(), chunks=None):
    """Returns a request; with `chunks`, the lengths of its chunks, the body is chunked."""
    lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
    if chunks:
        lines.append("Transfer-Encoding: chunked")
        ends = [sum(chunks[:count]) for count in range(len(chunks) + 1)]
        parts = [body[start:end] for start, end in zip(ends, ends[1:])]
        body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])
    elif method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class Client:
    """A connection."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.input = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.input.close()
        self.socket.close()

    def send(self, *fragments):
        for fragment in fragments:
            self.socket.sendall(fragment)
            if fragment is not fragments[-1]:
                time.sleep(PAUSE)

    def answer(self):
        """Returns the status, the headers and the body of the next answer; None at the end."""
        line = self.input.readline()
        if not line:
            return None
        headers = {}
        while (header := self.input.readline().strip()):
            name, value = header.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        status, body = int(line.split()[1]), b""
        if headers.get("transfer-encoding") == "chunked":
            while size := int(self.input.readline(), 16):
                body += self.input.read(size)
                self.input.readline()
            self.input.readline()
        elif status >= 200:
            body = self.input.read(int(headers.get("content-length", 0)))
        return status, headers, body


class Checks:
    """The checks of a server. Methods are named after profiles; `further_…` is not in validate.sh."""

    def __init__(self, address, site):
        self.address, self.site = address, site

    def ask(self, *fragments):
        with Client(self.address) as client:
            client.send(*fragments)
            return client.answer()

    def expect(self, body, *fragments, kinds=("text/plain",)):
        status, headers, found = self.ask(*fragments)
        kind = headers.get("content-type", "").split(";")[0]
        assert (status, found) == (200, str(body).encode()), f"{fragments}: {status} {found[:80]}, not {body}"
        assert kind in kinds, f"{fragments}: {kind}"

    def baseline(self):
        target, known = "/baseline11?a=13&b=42", 13 + 42
        self.expect(known, request(target))
        a, b = number(), number()
        self.expect(a + b, request(f"/baseline11?a={a}&b={b}"))
        for more in (20, number(), number()):
            body = b"%d" % more
            self.expect(known + more, request(target, "POST", body))
            self.expect(known + more, request(target, "POST", body, chunks=[len(body)]))
        close = ["Connection: close"]
        get, post = request(target, headers=close), request(target, "POST", b"20", headers=close)
        line = get.index(b"\r\n") + 2
        self.expect(known, get[:10], get[10:line], get[line:])
        self.expect(known, get[:line], get[line : line + 17], get[line + 17 :])
        self.expect(known + 20, post[:-2], post[-2:])
        self.expect(known + 20, post[:-2], b"2", b"0")

    def pipelined(self):
        self.expect("ok", request("/pipeline"))
        with Client(self.address) as client:
            client.send(request("/pipeline") * 16)
            assert all(client.answer()[2] == b"ok" for _ in range(16))

    def limited_conn(self):
        for _ in range(3):
            with Client(self.address) as client:
                for _ in range(10):
                    a = number()
                    client.send(request(f"/baseline11?a={a}&b=1"))
                    assert client.answer()[2] == b"%d" % (a + 1)

    def items(self, count, factor, headers=()):
        """Requests items, and returns the headers and the body."""
        status, headers, body = self.ask(request(f"/json/{count}?m={factor}", headers=headers))
        text = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        items = json.loads((self.site / "dataset.json").read_text())[:count]
        for item in items:
            item["total"] = item["price"] * item["quantity"] * factor
        assert status == 200 and json.loads(text) == {"items": items, "count": count}, f"{count} items: {status} {text[:200]}"
        assert headers["content-type"].split(";")[0] == "application/json", headers
        return headers

    def json(self):
        for count in (1, 12, 22, 31, 50):
            assert "content-encoding" not in self.items(count, random.randint(1, 9))

    def json_comp(self):
        for count in (25, 40, 50):
            headers = self.items(count, random.randint(1, 9), ["Accept-Encoding: gzip, br"])
            assert headers.get("content-encoding") == "gzip", headers

    def upload(self):
        for size in (17, 48, 500 << 10, 2 << 20, 10 << 20, 20 << 20):
            self.expect(size, request("/upload", "POST", random.randbytes(size)))
        self.expect(200_000, request("/upload", "POST", random.randbytes(200_000), chunks=[1, 99_999, 100_000]))

    def static(self):
        for name, kinds in FILES.items():
            body = (self.site / "static" / name).read_bytes().decode()
            self.expect(body, request(f"/static/{name}"), kinds=kinds)
        status, headers, body = self.ask(request("/static/app.js", headers=["Accept-Encoding: br;q=1, gzip;q=0.8"]))
        assert status == 200 and headers.get("content-encoding") == "gzip", headers
        assert gzip.decompress(body) == (self.site / "static/app.js").read_bytes()

    def further_requests_in_a_row(self):
        """Every kind of request, pipelined, and cut at every byte."""
        target = "/baseline11?a=1&b=2"
        kinds = [(3, request(target)), (103, request(target, "POST", b"100")), (33, request(target, "POST", b"30", chunks=[1, 1]))]
        all_of_them = b"".join(text for _, text in kinds) * 2
        for cut in range(1, len(all_of_them)):
            with Client(self.address) as client:
                client.socket.sendall(all_of_them[:cut])
                client.socket.sendall(all_of_them[cut:])
                found = [client.answer()[2] for _ in kinds * 2]
            assert found == [b"%d" % sum for sum, _ in kinds * 2], f"cut at {cut}: {found}"

    def further_refusals(self):
        statuses = {request("/nothing"): 404, request("/pipeline", "DELETE"): 405}
        for text, expected in statuses.items():
            status = self.ask(text)[0]
            assert status == expected, f"{text}: {status}, not {expected}"

    def further_malformed(self):
        """What is no request gets no answer or a refusal, and others are served meanwhile."""
        get = b"GET /baseline11?a=1&b=1 HTTP/1.1\r\n"
        post = b"POST /baseline11?a=1&b=1 HTTP/1.1\r\nHost: localhost\r\n"
        malformed = [
            b"GET /base\0line11?a=1&b=1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"GET\r\n\r\n",
            random.randbytes(64).translate(None, b"\r\n") + b"\r\n\r\n",
            get + b"Host: localhost\r\n: none\r\n\r\n",
            get + b"Host: localhost\r\nX: start\r\n \tfolded\r\n\r\n",
            get + b"Host: localhost\r\nX: bare\rreturn\r\n\r\n",
            get + b"Host: localhost\r\nX: " + b"x" * 2_000_000 + b"\r\n\r\n",
            post + b"Content-Length: two\r\n\r\n20",
            post + b"Content-Length: -2\r\n\r\n20",
            post + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n203",
            post + b"Transfer-Encoding: chunked\r\n\r\nz\r\n20\r\n0\r\n\r\n",
            post + b"Transfer-Encoding: chunked\r\n\r\n2\r\n2000\r\n\r\n",
        ]
        for text in malformed:
            with Client(self.address) as client:
                try:
                    client.send(text)
                    client.socket.shutdown(socket.SHUT_WR)
                    found = client.answer()
                except TimeoutError:
                    raise
                except OSError:
                    found = None  # the server has reset the connection
            assert found is None or 400 <= found[0] < 600, f"{text[:120]}: {found}"
            self.expect(2, request("/baseline11?a=1&b=1"))


def site(directory):
    """Writes a dataset and files of random content, so that no answer can be known before."""
    rating = lambda: {"score": number(), "count": number()}
    items = [
        {"id": id, "name": f"item {number()} \u00e9", "category": "tools", "price": number(), "quantity": number()}
        | {"active": random.random() < 0.5, "tags": ["new", str(number())], "rating": rating()}
        for id in range(50)
    ]
    (directory / "dataset.json").write_text(json.dumps(items))
    (directory / "static").mkdir()
    for name in FILES:
        text = random.randbytes(number()).hex().encode()
        (directory / "static" / name).write_bytes(text)
        (directory / "static" / f"{name}.gz").write_bytes(gzip.compress(text))


def check(program, directory):
    """Runs the checks of a program. Returns true if it passed."""
    server = subprocess.Popen([program, "127.0.0.1:0"], stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin", "DATA": str(directory)})
    try:
        ready = re.search(r"listening on (127\.0\.0\.1):(\d+)", server.stderr.readline())
        assert ready, f"{program} announced no address"
        checks = Checks((ready[1], int(ready[2])), directory)
        ours = OURS.match(program.name)
        tests = json.loads((ARENA / ours[2] / "meta.json").read_text())["tests"] if ours else ["baseline", "pipelined"]
        further = [name for name in dir(checks) if name.startswith("further_")]
        good, known = True, [line.split(":")[0] for line in FAILS.read_text().splitlines()]
        for name in [*tests, *further]:
            try:
                getattr(checks, name.replace("-", "_"))()
                print(f"{program.name} {name} ok")
            except (AssertionError, OSError, TypeError) as why:
                matters = f"{program.name} {name}" not in known
                print(f"{program.name} {name} {'FAILED' if matters else 'fails'}: {why}")
                good &= not matters
        return good
    finally:
        server.kill()
        server.wait()
        server.stderr.close()


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    named = [pathlib.Path(name) for name in sys.argv[1:]]
    programs = [file for path in named for file in (sorted(path.iterdir()) if path.is_dir() else [path]) if file.is_file()]
    with tempfile.TemporaryDirectory() as directory:
        site(pathlib.Path(directory))
        results = [check(program, pathlib.Path(directory)) for program in programs]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
