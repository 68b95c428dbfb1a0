#!/usr/bin/env python3
"""Checks a contender of `bench file`: starts it in its own directory, and checks its answers and the directory.

    check_file.py COMMAND ARGS...

Exit code: 0 passed, 1 failed, 2 usage, 3 it cannot run on this machine (it exited with 3).
"""

import json
import os
import subprocess
import sys
import tempfile

QUESTIONS = [(1, 1, 1), (3, 5, 4096), (2, 2, 100_000)]
PATIENCE = 60  # seconds; reaching this limit is a failure


def is_answer(line, question):
    workers, cycles, size = question
    answer = json.loads(line)
    counted = answer["operations"] == workers * cycles and answer["bytes"] == 2 * workers * cycles * size
    return counted and answer["ns"] > 0 and answer["cpu_ns"] > 0


def main():
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    asked = "".join("{} {} {}\n".format(*question) for question in QUESTIONS)
    with tempfile.TemporaryDirectory() as directory:
        command = sys.argv[1:] + [directory]
        said = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=PATIENCE)
        left = os.listdir(directory)
    if said.returncode == 3:
        return 3
    answers = said.stdout.splitlines()
    good = said.returncode == 0 and len(answers) == len(QUESTIONS) and not left
    good = good and all(is_answer(*pair) for pair in zip(answers, QUESTIONS))
    print("ok" if good else f"no: {said}, left behind: {left}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
