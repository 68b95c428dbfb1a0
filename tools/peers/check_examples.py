#!/usr/bin/env python3
"""Checks the example programs: starts each, and tests it with clients that were written elsewhere and with hostile ones.

    check_examples.py DIRECTORY            the examples that are in DIRECTORY
    check_examples.py DIRECTORY NAME...    only these

The same checks run over the examples of annulus and over their twins on tokio. A check whose client is missing is skipped,
with a line that says how to get it; with CI=true it fails, unless another program has the name of the client. Exit code: 0 all passed, 1 a check failed, 2 usage.
"""

import importlib
import os
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "examples"))

from harness import Missing, Other

# The checks of each example, by the module that has them.
MODULES = {
    "chat": "chat",
    "cluster": "cluster",
    "dns": "dns",
    "echo": "echoes",
    "proxy": "proxy",
    "redis": "redis",
    "shards": "echoes",
    "shutdown": "shutdown",
    "simulated": "simulated",
    "static_files": "static_files",
    "udp_echo": "echoes",
    "unix_echo": "echoes",
}


def passes(name, check, path):
    """Runs a check, and prints what came of it."""
    label = f"{name}: {check.__name__.replace('_', ' ')}"
    try:
        check(path)
    except Missing as why:
        print(f"skipped: {label}: {why}", flush=True)
        return isinstance(why, Other) or os.environ.get("CI") != "true"
    except Exception as error:
        print(f"FAILED  {label}: {type(error).__name__}: {error}", flush=True)
        return False
    print(f"ok      {label}", flush=True)
    return True


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(MODULES):
        print(f"{__doc__}\nThe names: {', '.join(MODULES)}.", file=sys.stderr)
        return 2
    directory = sys.argv[1]
    names = sys.argv[2:] or [name for name in MODULES if os.path.exists(os.path.join(directory, name))]
    results = []
    for name in names:
        for check in importlib.import_module(MODULES[name]).CHECKS:
            results.append(passes(name, check, os.path.join(directory, name)))
    if not results:
        print(f"no example in {directory}", file=sys.stderr)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
