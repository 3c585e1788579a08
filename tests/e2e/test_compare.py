"""bench compare: what is exact, what is tested, and builds that run in turn."""
import copy
import json
import os
import re

import harness
from harness import bench

FIRST = ["--fail-on", "latency=10%,bytes=0,memory=0,error=5%,missing=0"]


def sweep(folder, name="base.jsonl"):
    out = os.path.join(folder, name)
    done = bench("sweep", "--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref",
                 "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,tp-stale", "--gpus", "1,2",
                 "-o", out)
    assert done.returncode == 0, done.stderr
    return out


def write(folder, name, records):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record) + "\n")
    return path


def changed(records, change, strategy="tp"):
    """A copy in which `change` was applied to the point of the strategy on two ranks."""
    result = copy.deepcopy(records)
    for record in result:
        if record["config"]["strategy"] == strategy and record["config"]["gpus"] == 2:
            change(record)
    return result


def compare(folder, base, now, *words):
    return bench("compare", write(folder, "a.jsonl", base), write(folder, "b.jsonl", now), *(words or FIRST))


def with_samples(records, factor, n=15):
    """Measured latencies made up: 1 ms, 1% apart, times factor."""
    result = copy.deepcopy(records)
    for record in result:
        samples = [1000.0 * factor * (1 + 0.01 * ((7 * i) % n) / n) + 1e-3 * i for i in range(n)]
        record["latency_us"].update(samples=samples, median=sorted(samples)[n // 2], oversubscribed=False)
    return result


def a_file_equals_itself(folder):
    out = sweep(folder)
    done = bench("compare", out, out, *FIRST)
    assert done.returncode == 0, done.stderr
    assert "5 points on both sides, 0 only in NEW, 0 lost" in done.stdout and "0 over a limit" in done.stdout
    assert "too few samples; --repeat 9" in done.stdout or "more ranks than cores" in done.stdout


def one_byte_more_is_caught(folder):
    records = harness.read(sweep(folder))

    def send(record):
        record["comm"]["sent_bytes"][1] += 1
    def hold(record):
        record["memory_bytes"]["per_rank"][0]["peak"] += 1
    for change, word in ((send, "+1 B"), (hold, "+1 B")):
        done = compare(folder, records, changed(records, change))
        assert done.returncode == 1 and word in done.stdout and "1 points over a limit" in done.stderr, done.stderr
        assert compare(folder, changed(records, change), records).returncode == 0  # less is no regression
        assert compare(folder, records, changed(records, change), "--fail-on", "latency=1%").returncode == 0
        assert compare(folder, records, changed(records, change), "--fail-on", "none").returncode == 0
    # A rank that sends less does not excuse one that sends more.
    def move(record):
        record["comm"]["sent_bytes"][0] -= 100
        record["comm"]["sent_bytes"][1] += 1
    assert compare(folder, records, changed(records, move)).returncode == 1


def errors_and_their_floor(folder):
    records = harness.read(sweep(folder))

    def scale(factor):
        def change(record):
            record["error"]["rel_l2"] *= factor
        return change
    assert compare(folder, records, changed(records, scale(1.04), "tp-stale")).returncode == 0
    done = compare(folder, records, changed(records, scale(1.06), "tp-stale"))
    assert done.returncode == 1 and "+6.0%" in done.stdout
    # tp's error is rounding: within the noise floor it may double.
    def at(factor):
        def change(record):
            record["error"]["rel_l2"] = factor * record["error"]["noise_floor"]
        return change
    low = changed(records, at(1))
    assert compare(folder, low, changed(records, at(4.9))).returncode == 0
    assert compare(folder, low, changed(records, at(5.1))).returncode == 1


def points_come_and_go(folder):
    records = harness.read(sweep(folder))
    done = compare(folder, records, records[:-1])
    assert done.returncode == 1 and "1 lost" in done.stdout and "NEW" in done.stdout
    assert "absent" in done.stdout
    done = compare(folder, records[:-1], records)
    assert done.returncode == 0 and "1 only in NEW" in done.stdout
    def fail(record):
        record.update(status="timeout", reason="rank 1 did not come")
    done = compare(folder, records, changed(records, fail))
    assert done.returncode == 1 and "timeout, rank 1 did not come" in done.stdout
    assert compare(folder, records, changed(records, fail), "--fail-on", "bytes=0,missing=1").returncode == 0
    # A later good record replaces a failed one of the same point.
    assert compare(folder, records, changed(records, fail) + records).returncode == 0


def latency_is_tested(folder):
    base = with_samples(harness.read(sweep(folder)), 1.0)
    done = compare(folder, base, with_samples(base, 1.20))
    assert done.returncode == 1 and done.stdout.count("NEW slower !") == 5 and "1.200 [1.19" in done.stdout, done.stdout
    done = compare(folder, base, with_samples(base, 0.80))
    assert done.returncode == 0 and done.stdout.count("NEW faster") == 5
    assert compare(folder, base, with_samples(base, 1.08)).returncode == 0  # slower, but within 10%
    done = compare(folder, base, with_samples(base, 1.015))
    assert done.returncode == 0 and "NEW slower" not in done.stdout  # within the noise threshold
    done = compare(folder, base, with_samples(base, 1.20, n=5))
    assert done.returncode == 0 and done.stdout.count("too few samples; --repeat 9") == 5
    assert compare(folder, with_samples(base, 1.0, n=7), with_samples(base, 1.2, n=7)).returncode == 1
    def crowd(record):
        record["latency_us"]["oversubscribed"] = True
    done = compare(folder, base, [changed([r], crowd, r["config"]["strategy"])[0] for r in with_samples(base, 2)])
    assert done.stdout.count("more ranks than cores") == 2, done.stdout


def simulated_time_is_exact(folder):
    out = os.path.join(folder, "s.jsonl")
    words = ["run", "--model", "dit-s-2", "--device", "sim", "--platform", "h100-nvlink", "--dtype", "bf16",
             "--resolution", "256", "--strategy", "tp", "--gpus", "2", "--repeat", "1"]
    for name in ("s.jsonl", "again.jsonl"):
        assert bench(*words, "-o", os.path.join(folder, name)).returncode == 0
    records, again = harness.read(out), harness.read(os.path.join(folder, "again.jsonl"))
    for record in records + again:
        record.pop("provenance")
    assert records == again
    assert bench("compare", out, os.path.join(folder, "again.jsonl")).returncode == 0
    again = harness.read(out)
    again[0]["latency_us"]["median"] *= 1 + 1e-9
    done = bench("compare", out, write(folder, "n.jsonl", again))
    assert done.returncode == 1 and "simulated NEW slower !" in done.stdout, done.stdout
    assert bench("compare", out, write(folder, "n.jsonl", again), "--fail-on", "latency=1%").returncode == 0


def slow_bench(folder, percent):
    """The same program with its arithmetic slowed down."""
    path = os.path.join(folder, "bench-slow")
    with open(path, "w") as file:
        file.write(f'#!/bin/sh\nDITTO_TEST_SLOW=0:{percent} exec "{harness.BENCH}" "$@"\n')
    os.chmod(path, 0o755)
    return path


def in_turn(base, now, *words):
    """15 samples of each in turn. The least latency of short runs is hardly disturbed by a busy machine."""
    return bench("compare", "--run", base, now, "--samples", "15", "--statistic", "min", *words, "--", "--model",
                 harness.TINY, "--device", "ref", "--resolution", "16", "--steps", "1", "--repeat", "25",
                 "--warmup-runs", "1", "--reference", "none", timeout=600)


def in_a_round(most, what, base, now, code, part):
    """Runs rounds of 15 samples each until one ends as it should: other work can hide what is there, and on a
    quiet machine the first round is enough. A comparison that does not see it never passes."""
    for number in range(1, most + 1):
        done = in_turn(base, now, "--fail-on", "latency=15%")
        assert done.stderr.count("] ok") == 30 and "1 points on both sides" in done.stdout, done.stdout + done.stderr
        row = next(line for line in done.stdout.splitlines() if line.startswith("serial"))
        print(f"       {what}, round {number}: {re.search(r'[0-9.]+ .[0-9., ]+]', row)[0]}")
        if done.returncode == code and part in row:
            return
    raise AssertionError(f"{what}: not seen in {most} rounds of 15 samples\n{done.stdout}{done.stderr}")


def builds_in_turn(folder):
    """A build against itself is clean; 20% more time is caught at a limit of 15%."""
    in_a_round(3, "a build against itself", harness.BENCH, harness.BENCH, 0, "same")
    in_a_round(6, "20% slower", harness.BENCH, slow_bench(folder, 20), 1, "NEW slower !")


def programs_that_fail(folder):
    done = bench("compare", "--run", harness.BENCH, "/nonexistent/bench", "--", *harness.SMALL)
    assert done.returncode == 2 and "/nonexistent/bench" in done.stderr
    done = bench("compare", "--run", harness.BENCH, harness.BENCH, "--", *harness.SMALL, "--strategy", "tp",
                 "--gpus", "5")
    assert done.returncode == 1 and "heads" in done.stderr
    done = bench("compare", "--run", harness.BENCH, harness.BENCH, "--", *harness.SMALL, "-o",
                 os.path.join(folder, "x.jsonl"))
    assert done.returncode == 2 and "--output" in done.stderr
    for words, part in ((["--fail-on", "latency=10"], "latency=10%"), (["--fail-on", "speed=1%"], "latency="),
                        (["--fail-on", "missing=1%"], "without %"), (["--fail-on", "bytes"], "bytes")):
        done = bench("compare", "/dev/null", "/dev/null", *words)
        assert done.returncode == 2 and part in done.stderr, done.stderr


harness.main([a_file_equals_itself, one_byte_more_is_caught, errors_and_their_floor, points_come_and_go,
              latency_is_tested, simulated_time_is_exact, builds_in_turn, programs_that_fail])
