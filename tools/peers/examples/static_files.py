"""Checks of the static file server, with curl, http.client and plain sockets."""

import email.utils
import http.client
import os
import pathlib
import re
import resource
import tempfile
import time

from harness import PATIENCE, Missing, ends, eventually, output, payload, reset, rest, running, tool

FILES = {
    "index.html": b"<h1>root</h1>",
    "empty": b"",
    "big.bin": payload(3_000_000, 1),
    "a space.txt": b"spaced",
    "sub/index.html": b"<h1>sub</h1>",
    "style.css": b"p {}",
    "bare/file": b"x",
    "LOUD.PNG": b"png",
}


class Site:
    """A directory with `FILES`, and next to it a file that must not be served."""

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        above = pathlib.Path(self.temporary.name)
        (above / "secret").write_bytes(b"secret")
        self.root = above / "public"
        for name, data in FILES.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return self

    def __exit__(self, *_):
        self.temporary.cleanup()


def ask(port, lines):
    """Returns the whole answer to bytes after which the server closes."""
    import socket

    with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
        client.sendall(lines)
        return rest(client)


def status(answer):
    return int(answer.split(b" ")[1])


def get(port, target, *lines):
    """Returns the status, headers and body of the answer to a request with these header lines."""
    request = "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", "Connection: close", *lines, "", ""])
    head, _, body = ask(port, request.encode()).partition(b"\r\n\r\n")
    lines = [line.split(": ", 1) for line in head.decode().split("\r\n")[1:]]
    return status(head), {name.lower(): value for name, value in lines}, body


def files_over_one_connection(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        client.connect()
        first = client.sock
        for target, data in [("/" + name, data) for name, data in FILES.items()] + [("/", FILES["index.html"])]:
            client.request("GET", target.replace(" ", "%20"))
            reply = client.getresponse()
            assert reply.status == 200 and reply.read() == data, target
        for target, kind in (("/", "text/html"), ("/style.css", "text/css"), ("/a%20space.txt", "text/plain"), ("/big.bin", "application/octet-stream")):
            client.request("HEAD", target)
            reply = client.getresponse()
            length = len(FILES["index.html" if target == "/" else target[1:].replace("%20", " ")])
            assert int(reply.headers["content-length"]) == length and reply.read() == b""
            assert reply.headers["content-type"].startswith(kind), reply.headers.items()
        for target in ("/none", "/bare/", "/sub/none?query"):
            client.request("GET", target)
            reply = client.getresponse()
            assert reply.status == 404 and reply.read() == b"404 Not Found", target
        client.request("DELETE", "/index.html")
        reply = client.getresponse()
        assert reply.status == 405 and "GET" in reply.headers["allow"] and reply.read()
        client.request("GET", "/sub/?query=1", headers={"Connection": "close"})
        reply = client.getresponse()
        assert reply.status == 200 and reply.read() == FILES["sub/index.html"] and reply.headers["connection"] == "close"
        assert client.sock is None or client.sock is first, "the client reconnected"


def parts_and_copies_that_are_still_good(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        page = site.root / "style.css"
        os.utime(page, (951_782_400, 951_782_400))

        def get(**headers):
            client.request("GET", "/style.css", headers={name.replace("_", "-"): value for name, value in headers.items()})
            reply = client.getresponse()
            return reply.status, reply.read(), reply.headers

        code, body, headers = get()
        assert (code, body, headers["accept-ranges"]) == (200, b"p {}", "bytes")
        tag, date = headers["etag"], headers["last-modified"]
        assert date == "Tue, 29 Feb 2000 00:00:00 GMT", date
        for wanted, part, told in (
            ("bytes=1-2", b" {", "bytes 1-2/4"),
            ("bytes=3-", b"}", "bytes 3-3/4"),
            ("bytes=-3", b" {}", "bytes 1-3/4"),
            ("bytes=-99", b"p {}", "bytes 0-3/4"),
            (f"bytes=0-{2**64 - 1}", b"p {}", "bytes 0-3/4"),
        ):
            code, body, headers = get(Range=wanted)
            assert (code, body, headers["content-range"]) == (206, part, told), wanted
        for wanted in ("bytes=4-", "bytes=9-12", "bytes=-0"):
            code, body, headers = get(Range=wanted)
            assert (code, body, headers["content-range"]) == (416, b"", "bytes */4"), wanted
        for wanted in ("bytes=2-1", "bytes=0-0,2-2", "lines=1-2", "bytes=a-b", "bytes=-"):
            assert get(Range=wanted)[:2] == (200, b"p {}"), wanted
        for known in (dict(If_None_Match=tag), dict(If_None_Match=f'"x", W/{tag}'), dict(If_None_Match="*"), dict(If_Modified_Since=date)):
            code, body, headers = get(**known)
            assert (code, body, headers["etag"]) == (304, b"", tag), known
        assert get(If_None_Match='"x"', If_Modified_Since=date)[0] == 200
        assert get(Range="bytes=1-2", If_Range=tag)[0] == 206 and get(Range="bytes=1-2", If_Range='"x"')[0] == 200
        # A replaced file is noticed after a while at the latest.
        (site.root / "new").write_bytes(b"another")
        os.replace(site.root / "new", page)
        until = time.monotonic() + PATIENCE
        while (seen := get(If_None_Match=tag))[0] == 304:
            assert time.monotonic() < until
        assert seen[:2] == (200, b"another") and seen[2]["etag"] != tag


def messages_as_the_protocol_has_them(path):
    """Checks against RFC 9110 and 9112: requests that are refused once and with a close, and requests that are served in another form."""
    line, host = b"GET /style.css HTTP/1.1\r\n", b"Host: x\r\n"
    refused = {
        "no host": line,
        "two hosts": line + host + b"Host: y\r\n",
        "a space before a colon": line + host + b"Connection : close\r\n",
        "a tab before a colon": line + host + b"Content-Length\t: 5\r\n",
        "a line with a space first": line + host + b"X: y\r\n z\r\n",
        "a line without a colon": line + host + b"nothing\r\n",
        "a zero byte": line + host + b"X: \0\r\n",
        "a bare line feed": line + b"Host: x\nX: y\r\n",
        "a bare line feed at the end": line + host + b"\n",
        "a signed length": line + host + b"Content-Length: +0\r\n",
    }
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        for name, head in refused.items():
            answer = ask(server.port, head + b"\r\n" + line + host + b"\r\n")
            assert answer.count(b"HTTP/1.1 ") == 1 and status(answer) == 400, (name, answer)
        served = {
            b"GET http://x/style.css HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": b"p {}",
            line + host + b"Connection: close, TE\r\n\r\n": b"p {}",
            b"GET /LOUD.PNG HTTP/1.0\r\n\r\n": b"png",
            b"HEAD /style.css HTTP/1.0\r\nRange: bytes=0-0\r\n\r\n": b"",
        }
        for request, body in served.items():
            head, _, got = ask(server.port, request).partition(b"\r\n\r\n")
            assert status(head) == 200 and got == body and b"\r\ndate: " in head, (request, head, got)
            assert b"PNG" not in request or b"image/png" in head, head
        for target, location in ((b"/sub?a=b", b"/sub/"), (b"//sub", b"/sub/")):
            answer = ask(server.port, b"GET " + target + b" HTTP/1.0\r\n\r\n")
            assert status(answer) == 301 and b"\r\nlocation: " + location + b"\r\n" in answer, answer
        name = os.fsencode(site.root) + b"/na\xefve"
        with open(name, "wb") as file:
            file.write(b"latin")
        assert ask(server.port, b"GET /na%efve HTTP/1.0\r\n\r\n").endswith(b"latin")


def a_download_that_goes_on_is_of_one_file(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        page = site.root / "style.css"
        os.utime(page, (951_782_400, 951_782_400))
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)

        def get(**headers):
            client.request("GET", "/style.css", headers={name.replace("_", "-"): value for name, value in headers.items()})
            reply = client.getresponse()
            return reply.status, reply.read(), reply.headers

        _, _, known = get()
        tag, date = known["etag"], known["last-modified"]
        before, after = "Mon, 28 Feb 2000 00:00:00 GMT", "Wed, 01 Mar 2000 00:00:00 GMT"
        for expected, headers in (
            (206, dict(If_Match=tag)),
            (206, dict(If_Match="*")),
            (412, dict(If_Match='"x"')),
            (412, dict(If_Match="W/" + tag)),
            (206, dict(If_Unmodified_Since=date)),
            (206, dict(If_Unmodified_Since=after)),
            (412, dict(If_Unmodified_Since=before)),
            (304, dict(If_Modified_Since=after)),
            (206, dict(If_Modified_Since=before)),
        ):
            assert get(Range="bytes=1-2", **headers)[0] == expected, headers
        for wanted in ("bytes=+1-2", "bytes=1-+2", "bytes=-+2"):
            assert get(Range=wanted)[:2] == (200, b"p {}"), wanted


def curl_gets_files(path):
    curl = tool("curl", "curl")
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        got = os.path.join(site.temporary.name, "got")
        base = f"http://127.0.0.1:{server.port}"
        output(curl, "-sSf", "-o", got, base + "/big.bin")
        with open(got, "rb") as file:
            assert file.read() == FILES["big.bin"]
        assert output(curl, "-sS", "-o", got, "-w", "%{http_code}", base + "/none") == "404"
        assert output(curl, "-sS0", base + "/a%20space.txt") == "spaced"
        assert "content-length: 3000000" in output(curl, "-sSI", base + "/big.bin").lower()
        refused = output(curl, "-sS", "-o", got, "-w", "%{http_code}", "-H", "X: " + "y" * 20_000, base + "/")
        assert refused == "431", refused


def nothing_above_the_root(path):
    tool("curl", "curl")
    targets = ["/way-out", "/out/secret", "/../secret", "/sub/../../secret", "/%2e%2e/secret", "/..%2fsecret", "//secret", "/sub/%2e%2e/%2e%2e/secret"]
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        (site.root / "way-out").symlink_to("../secret")
        (site.root / "out").symlink_to(site.root.parent)
        (site.root / "inside").symlink_to("sub")
        assert status(ask(server.port, b"GET /inside/ HTTP/1.0\r\n\r\n")) == 200
        targets.append("/" + str(site.root.parent / "secret"))
        for target in targets:
            answer = ask(server.port, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert status(answer) == 404 and b"secret" not in answer, (target, answer)
            run = output("curl", "-sS", "--path-as-is", f"http://127.0.0.1:{server.port}{target}")
            assert "secret" not in run, (target, run)


def requests_in_a_row_and_in_pieces(path):
    requests = b"GET /style.css HTTP/1.1\r\nHost: x\r\n\r\n" * 20 + b"GET /empty HTTP/1.0\r\n\r\n"
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        whole = undated(ask(server.port, requests))
        assert whole.count(b"200 OK") == 21 and whole.count(b"p {}") == 20, whole
        with server.connect() as client:
            for byte in requests:
                client.sendall(bytes([byte]))
            assert undated(rest(client)) == whole


def undated(answers):
    """Removes the header Date, because the next answer may come in another second."""
    return re.sub(rb"(?i)\r\ndate: [^\r]*", b"", answers)


def hostile_clients(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        bad = {
            b"\r\n\r\n": 400,
            b"GET /\r\n\r\n": 400,
            b"GET / HTTP/9.9\r\n\r\n": 400,
            b"GET nothing HTTP/1.1\r\n\r\n": 400,
            b"GET /%zz HTTP/1.1\r\n\r\n": 400,
            b"GET /%4 HTTP/1.1\r\n\r\n": 400,
            b"GET /\xff HTTP/1.1\r\n\r\n": 400,
            b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello": 400,
            b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
            b"GET /" + b"a" * 20_000: 431,
            b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000: 431,
            b"GET /%00 HTTP/1.0\r\n\r\n": 404,
            b"GET /" + b"a" * 5000 + b" HTTP/1.0\r\n\r\n": 404,
            b"NONSENSE / HTTP/1.0\r\n\r\n": 405,
        }
        for request, expected in bad.items():
            answer = ask(server.port, request)
            assert status(answer) == expected, (request[:40], answer)
        # Half a request, followed by an orderly close; a reset in the middle of a file.
        with server.connect() as client:
            client.sendall(b"GET / HT")
            client.shutdown(1)
            assert ends(client)
        client = server.connect()
        client.sendall(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(1000)
        reset(client)
        # A client that sends requests and does not read delays no other.
        with server.connect() as lazy:
            lazy.sendall(b"GET /big.bin HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
            assert status(ask(server.port, b"GET / HTTP/1.0\r\n\r\n")) == 200
        # A client that sends nothing is finally disconnected.
        with server.connect() as client:
            client.sendall(b"GET / HTTP/1.1\r\n")
            assert ends(client)


def past_its_limit_it_refuses_and_serves_the_others(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root, 2) as server:

        def connection():
            return http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)

        def get(client):
            client.request("GET", "/style.css")
            answer = client.getresponse()
            answer.read()
            return answer.status, answer.getheader("connection")

        served = [connection(), connection()]
        assert [get(client) for client in served] == [(200, "keep-alive")] * 2
        for _ in range(20):
            assert get(connection()) == (503, "close")
        assert [get(client) for client in served] == [(200, "keep-alive")] * 2
        served.pop().close()
        eventually(lambda: get(connection())[0] == 200, "a place is free")
        served.pop().close()


def a_file_of_any_date_is_served(path):
    day = 86_400
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        file = site.root / "style.css"
        # 1902, 1969, 1970, a second later, 1980, 2000, 2037 and 2446: the range of dates in file systems.
        for seconds in (-(2**31), -0.5, 0, 1, 315_532_800, 951_782_400, 2**31 - day, 15_032_385_535):
            os.utime(file, (seconds, seconds))

            def dated():
                return [get(server.port, "/style.css"), get(server.port, "/style.css", "Range: bytes=1-")]

            eventually(lambda: [answer[0] for answer in dated()] == [200, 206], f"{seconds}: {dated()}")
            # 2000 is the only date here that tells when the file was modified.
            is_dated = lambda: "last-modified" in get(server.port, "/style.css")[1]
            eventually(lambda: is_dated() == (seconds == 951_782_400), f"last-modified for {seconds}")
            code, headers, body = get(server.port, "/style.css")
            if "last-modified" in headers:
                modified = email.utils.parsedate_to_datetime(headers["last-modified"]).timestamp()
                assert modified <= email.utils.parsedate_to_datetime(headers["date"]).timestamp(), headers
            assert (code, body) == (200, b"p {}"), (seconds, code)
        # A date that many files share, or that is in the future, tells a client nothing: it is not sent, and conditions
        # on a date are ignored.
        for seconds in (0, 1, 315_532_800, 2**31 - day):
            os.utime(file, (seconds, seconds))
            os.replace(file, site.root / f"at-{seconds}")
            (site.root / "style.css").write_bytes(b"p {}")
            target = f"/at-{seconds}"
            for date in (email.utils.formatdate(usegmt=True), email.utils.formatdate(max(seconds, 1), usegmt=True)):
                assert get(server.port, target, f"If-Modified-Since: {date}")[0] == 200, (seconds, date)
                assert get(server.port, target, f"If-Range: {date}", "Range: bytes=1-")[0] == 200, (seconds, date)
                assert get(server.port, target, f"If-Unmodified-Since: {date}", "Range: bytes=1-")[0] == 206, (seconds, date)


def files_of_one_date_and_length_differ(path):
    """Like the files of Nix and of container images, whose dates are all the same."""
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        file = site.root / "app.js"

        def write(data, how):
            if how == "another file":
                file.unlink(missing_ok=True)
            file.write_bytes(data)
            os.utime(file, (951_782_400, 951_782_400))

        write(b"version 1", "another file")
        for data, how in ((b"version 2", "another file"), (b"version 3", "in place"), (b"version 4", "another file")):
            tag = get(server.port, "/app.js")[1]["etag"]
            write(data, how)
            eventually(lambda: get(server.port, "/app.js")[1]["etag"] != tag, f"another tag: {how}")
            assert get(server.port, "/app.js", f"If-None-Match: {tag}")[::2] == (200, data)
            assert get(server.port, "/app.js", f"If-Range: {tag}", "Range: bytes=1-")[::2] == (200, data)
            assert get(server.port, "/app.js", f"If-Match: {tag}")[0] == 412


def a_date_is_good_once_its_second_is_over(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        file = site.root / "style.css"
        for age, expected in ((1000, 206), (0, 200)):
            date = int(time.time()) - age
            os.utime(file, (date, date))

            # Until the server sees the date, and as long as it is the current second.
            def asked():
                headers = ("Range: bytes=1-", f"If-Range: {email.utils.formatdate(date, usegmt=True)}")
                return get(server.port, "/style.css", *headers)[0]

            if age > 0:
                eventually(lambda: asked() == expected, f"{expected} at the age of {age} s")
            else:
                assert asked() == expected or time.time() >= date + 1


def conditions_as_the_protocol_has_them(path):
    with Site() as site, running(path, "127.0.0.1:0", site.root) as server:
        os.utime(site.root / "style.css", (951_782_400, 951_782_400))
        tag = get(server.port, "/style.css")[1]["etag"]
        before, after = "Mon, 28 Feb 2000 00:00:00 GMT", "Wed, 01 Mar 2000 00:00:00 GMT"
        for expected, *lines in (
            (304, 'If-None-Match: "x"', f"If-None-Match: {tag}"),
            (200, 'If-None-Match: "x"', f"If-Modified-Since: {after}"),
            (200, "If-None-Match: W/*"),
            (200, f'If-Match: "x"', f"If-Match: {tag}"),
            (200, f"If-Match: {tag}", f"If-Unmodified-Since: {before}"),
            # An invalid date is ignored.
            (200, "If-Unmodified-Since: yesterday"),
            (200, "If-Modified-Since: yesterday"),
            (206, "Range: BYTES=1-2"),
            (206, f"Range: bytes=1-{10**30}"),
            (206, f"Range: bytes=-{10**30}"),
            (416, f"Range: bytes={10**30}-"),
            (200, "Range: bytes=1-2", f"If-Range: W/{tag}"),
            (412, "Range: bytes=1-2", 'If-Match: "x"'),
            (304, "Range: bytes=1-2", f"If-None-Match: {tag}"),
        ):
            assert get(server.port, "/style.css", *lines)[0] == expected, lines
        for wanted in ("bytes=0-", "bytes=-5", "bytes=0-0", "bytes=5-", "bytes=-0"):
            code, headers, body = get(server.port, "/empty", f"Range: {wanted}")
            assert (code, headers["content-length"], body) == (200, "0", b""), (wanted, code)


def what_the_server_lacks_is_not_missing(path):
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with Site() as site:
        for number in range(80):
            (site.root / str(number)).write_bytes(b"there")
        with running(path, "127.0.0.1:0", site.root, preexec_fn=few) as server:
            # Each connection holds a descriptor of the server, until none is left.
            held, answers = [], set()
            for number in range(80):
                client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
                client.connect()
                held.append(client)
            for number, client in enumerate(held):
                try:
                    client.request("GET", f"/{number}")
                    answers.add(client.getresponse().status)
                except TimeoutError:
                    break  # This one was not accepted, nor were those after it.
            assert 503 in answers and answers <= {200, 503}, answers
            for client in held:
                client.close()
            eventually(lambda: get(server.port, "/7")[0] == 200, "it serves again")


def each_error_has_its_status(path):
    strace = tool("strace", "strace")
    expected = {"EIO": 500, "ESTALE": 500, "ENOMEM": 503, "EMFILE": 503, "ENFILE": 503, "EACCES": 403, "ENOENT": 404, "ELOOP": 404}
    for error, code in expected.items():
        with Site() as site, tempfile.TemporaryDirectory() as directory:
            inject = ["-e", "trace=openat,openat2", "-e", f"inject=openat,openat2:error={error}"]
            paths = [word for name in ("style.css", "./style.css", str(site.root / "style.css")) for word in ("-P", name)]
            run = os.path.join(directory, "run")
            words = [strace, "-D", "-f", "-qq", "-o", "/dev/null", *inject, *paths, path]
            pathlib.Path(run).write_text("#!/bin/sh\nexec " + " ".join(f"'{word}'" for word in words) + ' "$@"\n')
            os.chmod(run, 0o755)
            # strace does not see the calls that the kernel makes for a ring.
            with running(run, "127.0.0.1:0", site.root, env=dict(os.environ, ANNULUS_DRIVER="epoll")) as server:
                answers = [get(server.port, target)[0] for target in ("/style.css", "/")]
                assert answers == [code, 200], (error, answers)


def a_file_that_may_not_be_read_is_forbidden(path):
    if os.geteuid() != 0:
        raise Missing("not root: run the check as root, so that it can give up its rights")
    drop = lambda: (os.setgroups([]), os.setgid(65534), os.setuid(65534))
    with Site() as site:
        os.chmod(site.temporary.name, 0o755)
        (site.root / "secret").write_bytes(b"secret")
        os.chmod(site.root / "secret", 0)
        os.chmod(site.root / "sub", 0)
        with running(path, "127.0.0.1:0", site.root, preexec_fn=drop) as server:
            for target, expected in (("/secret", 403), ("/sub/index.html", 403), ("/none", 404), ("/style.css/x", 404), ("/" + "n" * 300, 404)):
                code, _, body = get(server.port, target)
                assert code == expected and body != b"secret", (target, code)


CHECKS = [
    past_its_limit_it_refuses_and_serves_the_others,
    files_over_one_connection,
    parts_and_copies_that_are_still_good,
    messages_as_the_protocol_has_them,
    a_download_that_goes_on_is_of_one_file,
    curl_gets_files,
    nothing_above_the_root,
    requests_in_a_row_and_in_pieces,
    hostile_clients,
    a_file_of_any_date_is_served,
    files_of_one_date_and_length_differ,
    a_date_is_good_once_its_second_is_over,
    conditions_as_the_protocol_has_them,
    what_the_server_lacks_is_not_missing,
    each_error_has_its_status,
    a_file_that_may_not_be_read_is_forbidden,
]
