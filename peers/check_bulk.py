#!/usr/bin/env python3
"""Checks a bulk contender: starts it, requests a few transfers, and checks each answer.

    check_bulk.py COMMAND [MODE]

Exit code: 0 it does, 1 it does not, 2 usage, 3 it cannot run on this machine (it exited with 3).
"""

import json
import os
import subprocess
import sys

QUESTIONS = ["1200 512 0.02", "1200 1 0.02", "8 64 0.02", "65507 8 0.02"]
PATIENCE = 60  # seconds; reaching it is the failure


def is_good(line):
    answer = json.loads(line)
    positive = ("operations", "bytes", "ns", "sender_cpu_ns", "receiver_cpu_ns")
    return answer["lost"] >= 0 and all(answer[name] > 0 for name in positive)


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    cores = sorted(os.sched_getaffinity(0))
    command = [sys.argv[1], str(cores[-1]), str(cores[0]), *sys.argv[2:]]
    asked = "\n".join(QUESTIONS) + "\n"
    said = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=PATIENCE)
    if said.returncode == 3:
        return 3
    answers = said.stdout.splitlines()
    good = said.returncode == 0 and len(answers) == len(QUESTIONS) and all(map(is_good, answers))
    print("ok" if good else f"no: {said}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
