"""What the end-to-end checks share: running bench, reading and validating records, counting.

usage of every check: SCRIPT BENCH SOURCE_ROOT; the last line is "N passed, M failed".
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import traceback

import jsonschema
import numpy

BENCH, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
if not os.access(BENCH, os.X_OK):
    sys.exit(f"{BENCH}: no program there")
TINY = os.path.join(ROOT, "tests/models/tiny.safetensors")
with open(os.path.join(ROOT, "results/schema.json")) as file:
    SCHEMA = jsonschema.Draft202012Validator(json.load(file))
SMALL = ["--model", TINY, "--resolution", "8", "--steps", "3", "--device", "ref", "--repeat", "1",
         "--warmup-runs", "0"]


def bench(*words, env=None, timeout=120, cwd=None):
    """Runs bench; returns the finished process with text output."""
    full = dict(os.environ, **(env or {}))
    return subprocess.run([BENCH, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                          env=full, cwd=cwd, errors="surrogateescape")


def no_constant(name):
    raise ValueError(f"{name} is not JSON")


def parse(text):
    """Records of a result file's text, each valid against the schema."""
    records = [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]
    for record in records:
        errors = sorted(SCHEMA.iter_errors(record), key=str)
        assert not errors, errors[0]
    return records


def read(path):
    with open(path, encoding="utf-8") as file:
        return parse(file.read())


def tensors(path):
    """Name to array, of a file with F32 tensors."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: numpy.frombuffer(data[8 + size:], "<f4", int(numpy.prod(t["shape"])),
                                   t["data_offsets"][0]).reshape(t["shape"])
            for name, t in header.items()}


def run_small(*words, env=None):
    """One small point, which must end well; its record."""
    done = bench("run", *SMALL, *words, env=env)
    assert done.returncode == 0, done.stderr
    return parse(done.stdout)[-1]


class Skipped(Exception):
    """Raised by a check that this machine does not allow, with the reason; see tests/allowed-skips.txt."""


def main(checks):
    """Runs functions that take a scratch folder; a failed assertion is a failed check."""
    failed = skipped = 0
    for check in checks:
        folder = tempfile.mkdtemp(prefix="ditto-e2e.")
        try:
            check(folder)
            print("ok    ", check.__name__)
        except Skipped as reason:
            skipped += 1
            print(f"       {reason}\n[  SKIPPED ] {check.__name__}")
        except Exception:
            failed += 1
            print("FAILED", check.__name__)
            traceback.print_exc(file=sys.stdout)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(checks) - failed - skipped} passed, {failed} failed")
    sys.exit(1 if failed else 0)
