#!/usr/bin/env python3
"""Checks a NOP contender: starts it, requests a few queue sizes, and checks each answer.

    check_nop.py COMMAND ARGS...

Exit code: 0 passed, 1 failed, 2 usage, 3 it cannot run on this machine (it exited with 3).
"""

import json
import subprocess
import sys

QUESTIONS = ["1 0.001", "64 0.001", "4096 0.001"]
PATIENCE = 60  # seconds; reaching this limit is a failure


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    asked = "\n".join(QUESTIONS) + "\n"
    said = subprocess.run(sys.argv[1:], input=asked, capture_output=True, text=True, timeout=PATIENCE)
    if said.returncode == 3:
        return 3
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    good = said.returncode == 0 and len(answers) == len(QUESTIONS)
    good = good and all(answer[name] > 0 for answer in answers for name in ("operations", "ns", "cpu_ns"))
    print("ok" if good else f"no: {said}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
