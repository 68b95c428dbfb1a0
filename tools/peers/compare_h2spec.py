#!/usr/bin/env python3
"""Runs h2spec against hyper on annulus and hyper on tokio, and compares which of its cases fail.

    compare_h2spec.py DIRECTORY [--runs N] [--timeout S] [--h2spec PATH]

DIRECTORY is the path that `tools/peers/hyper/build` printed. Requests are for `/read`, which is
answered only after the end of the request, so that errors in the request are reported before the
answer. Some cases still depend on timing, so each server is tested several times, in turn, with
and without TLS. A case counts as failed if it passes in no run. h2spec: go install
github.com/summerwind/h2spec/cmd/h2spec@latest

Exit code: 0 no case fails on annulus that passes on tokio, 1 one does, 2 usage, 3 h2spec is
missing.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

SERVERS = {
    "tokio": ["tokio"],
    "uring": ["annulus", "uring"],
    "epoll": ["annulus", "epoll"],
    "guest": ["annulus", "guest"],
}
SERVICES = {"http2": [], "https2": ["-t", "-k"]}
PATIENCE = 600  # seconds; reaching this limit is a failure


def failures(h2spec, port, words, timeout):
    """Returns the number of cases, and the names of the failed ones."""
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [h2spec, *words, "-h", "127.0.0.1", "-p", port, "-P", "/read", "-o", str(timeout), "-j", report.name]
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=PATIENCE)
        root = xml.etree.ElementTree.parse(report.name).getroot()
    cases = list(root.iter("testcase"))
    failed = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return len(cases), {f"{case.get('package')} {case.get('classname')}" for case in failed}


def test(directory, server, service, options):
    program, *mode = SERVERS[server]
    command = [directory / program, "0", service, *mode]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        ready = re.search(r"listening on 127\.0\.0\.1:(\d+)", process.stderr.readline())
        if not ready:
            raise SystemExit(f"{server} does not listen")
        return failures(options.h2spec, ready[1], SERVICES[service], options.timeout)
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5, help="how often each server is tested (5)")
    parser.add_argument("--timeout", type=int, default=2, help="seconds that h2spec waits for an answer (2)")
    parser.add_argument("--h2spec", default="h2spec", help="the path of h2spec, if it is not in PATH")
    options = parser.parse_args()
    if not shutil.which(options.h2spec):
        print("no h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest", file=sys.stderr)
        return 3
    good = True
    for service in SERVICES:
        failed = {server: [] for server in SERVERS}
        for _ in range(options.runs):
            for server in SERVERS:
                count, names = test(options.directory.resolve(), server, service, options)
                failed[server].append(names)
        always = {server: set.intersection(*runs) for server, runs in failed.items()}
        for server, runs in failed.items():
            passed = ", ".join(str(count - len(names)) for names in runs)
            print(f"{service} {server}: of {count} cases pass {passed}; fail in all runs: {len(always[server])}")
            for name in sorted(always[server] - always["tokio"]):
                print(f"  not on tokio: {name}")
                good = False
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
