"""Checks of the client and server on a simulated kernel: they succeed with any seed, and a seed always gives the same run."""

import subprocess

from harness import PATIENCE


def run(path, seed):
    return subprocess.run([path, seed], capture_output=True, text=True, timeout=PATIENCE)


def it_succeeds_whatever_the_seed(path):
    for seed in range(20):
        done = run(path, str(seed))
        assert done.returncode == 0 and done.stdout.count("round") == 5, f"seed {seed}: {done}"


def a_seed_is_one_run(path):
    first, again, other = (run(path, seed).stdout for seed in ("3", "3", "4"))
    assert first == again != other, (first, again, other)


def a_bad_seed_is_a_usage_error(path):
    for seed in ("x", "-1"):
        done = run(path, seed)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and seed in done.stderr, done


CHECKS = [it_succeeds_whatever_the_seed, a_seed_is_one_run, a_bad_seed_is_a_usage_error]
