"""Checks of the echo servers: runs the checks of the peers as a separate program."""

import os
import pathlib
import subprocess
import sys
import tempfile

from harness import PATIENCE

CHECK = pathlib.Path(__file__).resolve().parent.parent / "check.py"


def it_echoes(path):
    """Runs all checks of `check.py`: half-closes, floods, peers that never read, resets, no descriptors left, and so on."""
    with tempfile.TemporaryDirectory() as directory:
        is_unix = os.path.basename(path).startswith("unix")
        address = os.path.join(directory, "socket") if is_unix else "127.0.0.1:0"
        command = [sys.executable, CHECK, path, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10 * PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr


CHECKS = [it_echoes]
