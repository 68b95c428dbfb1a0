"""Checks of the simulated cluster: it elects leaders with any seed, and a seed always gives the same run."""

import re
import subprocess

from harness import PATIENCE

LINE = re.compile(r"10\.0\.0\.(\d):7000 leads term (\d+), and is cut off")


def run(path, seed):
    return subprocess.run([path, seed], capture_output=True, text=True, timeout=PATIENCE)


def leaders_are_elected_whatever_the_seed(path):
    for seed in range(10):
        done = run(path, str(seed))
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"
        elections = [LINE.fullmatch(line) for line in done.stdout.splitlines()]
        assert len(elections) == 10 and all(elections), done.stdout
        leaders, terms = [found[1] for found in elections], [int(found[2]) for found in elections]
        assert terms == sorted(set(terms)) and all(a != b for a, b in zip(leaders, leaders[1:])), done.stdout


def a_seed_is_one_run(path):
    outputs = [run(path, seed).stdout for seed in ("7", "7", "8", "9")]
    assert outputs[0] == outputs[1] and len(set(outputs)) > 1, outputs


def a_bad_seed_is_an_error(path):
    for seed in ("x", "-1", "99999999999999999999"):
        done = run(path, seed)
        assert done.returncode == 1 and "Error" in done.stderr and "panicked" not in done.stderr, done


CHECKS = [leaders_are_elected_whatever_the_seed, a_seed_is_one_run, a_bad_seed_is_an_error]
