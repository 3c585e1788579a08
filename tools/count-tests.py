#!/usr/bin/python3
"""Sums what tests counted themselves; meson counts executables.

usage: count-tests.py ALLOWED_SKIPS TESTLOG.json...

cmocka prints "[  PASSED  ] N test(s)", end-to-end checks "N passed, M failed"; a test that prints neither
counts once. A skipped test is a failure unless ALLOWED_SKIPS has its name and a reason ("name: reason").
The last line is "N passed, M failed"; the exit code is 1 when something failed or nothing ran.
"""
import json
import re
import sys

PASSED = re.compile(r"^\[  PASSED  \] (\d+) test\(s\)", re.M)
FAILED = re.compile(r"^\[  FAILED  \] (\d+) test\(s\)", re.M)
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+)$", re.M)
OWN = re.compile(r"^(\d+) passed, (\d+) failed$", re.M)


def allowed_skips(path):
    with open(path) as file:
        lines = [line.split(":", 1) for line in file if line.strip() and not line.startswith("#")]
    return {name.strip() for name, reason in lines if reason.strip()}


def count(entry, allowed):
    """(passed, failed, complaints) of one executable."""
    output = (entry.get("stdout") or "") + "\n" + (entry.get("stderr") or "")
    complaints = []
    own = OWN.findall(output)
    passed = sum(map(int, PASSED.findall(output))) + sum(int(p) for p, _ in own)
    failed = sum(map(int, FAILED.findall(output))) + sum(int(f) for _, f in own)
    for name in sorted(set(SKIPPED.findall(output))):
        if name not in allowed:
            failed += 1
            complaints.append(f"{entry['name']}: {name} was skipped")
    result = entry["result"]
    if result == "SKIP" and entry["name"].split()[-1] not in allowed:
        failed += 1
        complaints.append(f"{entry['name']}: was skipped")
    elif result not in ("OK", "SKIP"):
        failed = max(failed, 1)
        complaints.append(f"{entry['name']}: {result}")
    elif result == "OK" and passed + failed == 0:
        passed = 1
    return passed, failed, complaints


def main():
    allowed = allowed_skips(sys.argv[1])
    passed = failed = 0
    for path in sys.argv[2:]:
        try:
            with open(path) as file:
                entries = [json.loads(line) for line in file]
        except OSError as error:
            print(f"{path}: {error.strerror}: its tests did not run")
            failed += 1
            continue
        for entry in entries:
            p, f, complaints = count(entry, allowed)
            passed, failed = passed + p, failed + f
            for complaint in complaints:
                print(complaint)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
