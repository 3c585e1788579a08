"""The committed baseline: bytes, memory, simulated time and error are what they were."""
import json
import os

import harness
from harness import bench

BASELINE = os.path.join(harness.ROOT, "results/ci-baseline.jsonl")
LIMITS = "simulated=0,bytes=0,memory=0,error=5%,missing=0"


def the_baseline_is_kept(folder):
    out = os.path.join(folder, "new.jsonl")
    for name in ("ci-bytes", "ci-simulated"):
        done = bench("sweep", os.path.join(harness.ROOT, f"bench/sweeps/{name}.json"), "-o", out, "--resume",
                     timeout=600)
        assert done.returncode == 0, done.stderr
    records = harness.read(out)
    assert len(records) == len(harness.read(BASELINE)) >= 45
    done = bench("compare", BASELINE, out, "--fail-on", LIMITS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(records)} points on both sides, 0 only in NEW, 0 lost" in done.stdout
    # The comparison could fail: one byte, one part in a million of simulated time.
    for change in (lambda r: r["comm"]["sent_bytes"].__setitem__(0, r["comm"]["sent_bytes"][0] + 1),
                   lambda r: r["latency_us"].update(median=r["latency_us"]["median"] * 1.000001)):
        worse = os.path.join(folder, "worse.jsonl")
        with open(worse, "w", encoding="utf-8") as file:
            for record in harness.read(out):
                if record["config"]["device"] == "sim" and record["config"]["strategy"] == "tp":
                    change(record)
                file.write(json.dumps(record) + "\n")
        done = bench("compare", BASELINE, worse, "--fail-on", LIMITS)
        assert done.returncode == 1 and done.stdout.count(" !\n") + done.stdout.count(" !  ") >= 1, done.stdout


def the_baseline_is_valid(folder):
    records = harness.read(BASELINE)
    assert all(record["status"] == "ok" for record in records)
    assert len({record["case_id"] for record in records}) == len(records)
    known = {line.split()[0] for line in bench("list", "strategies").stdout.splitlines() if line[:1].isalpha()}
    assert {r["config"]["strategy"] for r in records} == known
    for record in records:
        counted = record["comm"]
        assert counted["sent_bytes"] == counted["claimed_bytes"], record["case_id"]


harness.main([the_baseline_is_valid, the_baseline_is_kept])
