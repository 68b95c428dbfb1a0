#!/usr/bin/env python3
"""Checks the example programs: starts each, and tests it with existing client programs and with
hostile clients.

    check_examples.py DIRECTORY            all examples in DIRECTORY
    check_examples.py DIRECTORY NAME...    only these

The same checks run against the examples of annulus and their tokio versions. A check whose client
is missing is skipped, with a line that says how to install the client. With CI=true the check
fails, unless another program has the client's name. Exit code: 0 all passed, 1 a check failed, 2
usage.
"""

import concurrent.futures
import importlib
import os
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "examples"))

from harness import Missing, Other

# The examples, each with the module of its checks.
MODULES = {
    "chat": "chat",
    "cluster": "cluster",
    "dns": "dns",
    "echo": "echoes",
    "log": "log",
    "proxy": "proxy",
    "redis": "redis",
    "shards": "echoes",
    "shutdown": "shutdown",
    "simulated": "simulated",
    "static_files": "static_files",
    "udp_echo": "echoes",
    "unix_echo": "echoes",
}


def run(name, check, path):
    """Runs a check. Returns whether it passed, and a line with its outcome."""
    label = f"{name}: {check.__name__.replace('_', ' ')}"
    try:
        check(path)
    except Missing as why:
        return isinstance(why, Other) or os.environ.get("CI") != "true", f"skipped: {label}: {why}"
    except Exception as error:
        return False, f"FAILED  {label}: {type(error).__name__}: {error}"
    return True, f"ok      {label}"


def all_pass(name, path):
    """Runs the checks of an example concurrently, since most of them wait. Each has its own program and ports."""
    checks = importlib.import_module(MODULES[name]).CHECKS
    with concurrent.futures.ThreadPoolExecutor(len(checks)) as pool:
        passed = True
        for passes, line in pool.map(lambda check: run(name, check, path), checks):
            print(line, flush=True)
            passed = passed and passes
    return passed


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(MODULES):
        print(f"{__doc__}\nNames: {', '.join(MODULES)}.", file=sys.stderr)
        return 2
    directory = sys.argv[1]
    names = sys.argv[2:] or [name for name in MODULES if os.path.exists(os.path.join(directory, name))]
    results = [all_pass(name, os.path.join(directory, name)) for name in names]
    if not results:
        print(f"no example in {directory}", file=sys.stderr)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
