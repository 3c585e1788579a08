"""bench sweep: which points there are, children that fail, resuming, interrupting, one writer."""
import json
import os
import random
import signal
import subprocess
import time

import harness
from harness import bench

POINT = ["--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref", "--repeat",
         "1", "--warmup-runs", "0"]


def sweep(folder, *words, env=None, name="r.jsonl"):
    return bench("sweep", *POINT, *words, "-o", os.path.join(folder, name), env=env)


def planned(*words):
    done = bench("sweep", *words, "--dry-run")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[:-1]


def points_are_multiplied(folder):
    lines = planned(*POINT, "--strategy", "serial,tp,tp-stale", "--gpus", "1,2", "--staleness", "0,1")
    assert len(lines) == 1 + 2 + 4, lines  # serial once, tp has no use for staleness
    assert len({line.split()[0] for line in lines}) == 7
    assert not os.path.exists(os.path.join(folder, "results"))


def json_files(folder):
    path = os.path.join(folder, "s.json")

    def write(value):
        with open(path, "w") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))
    plan = {"base": {"model": harness.TINY, "steps": 2, "resolution": 8},
            "axes": {"strategy": ["tp", "tp-stale"], "gpus": [1, 2, 4], "stale_mode": ["all", "peers"],
                     "cfg-scale": [1, 2.5]},
            "exclude": [{"strategy": "tp", "gpus": [1, 2]}, {"stale_mode": "peers", "gpus": 4}]}
    write(plan)
    assert len(planned(path)) == 2 * (1 + 3 + 2)
    assert len(planned(path, "--gpus", "4", "--cfg-scale", "1")) == 1 + 1
    for bad, part in ((json.dumps(plan) + "x", "text follows"),
                      ('{"base": {"steps": 1, "steps": 2}}', "twice"),
                      ({"axis": {}}, "axis"), ({"base": {"step": 1}}, "step"),
                      ({"base": {"steps": [1, 2]}}, "axes"), ({"axes": {"steps": 3}}, "list"),
                      ({"axes": {"steps": []}}, "empty"), ({"base": {"steps": 0}}, "1 to 1000"),
                      ({"base": {"seed": 2 ** 60}}, "2^53"), ("[]", "object"), ("{", "JSON"),
                      ({"exclude": [{}]}, "exclude"), ({"base": {"steps": None}}, "number")):
        write(bad)
        done = bench("sweep", path, "-o", os.path.join(folder, "x.jsonl"))
        assert done.returncode == 2 and part in done.stderr, (bad, done.stderr)
        assert not os.path.exists(os.path.join(folder, "x.jsonl"))


def records_and_references(folder):
    done = sweep(folder, "--strategy", "serial,tp,tp-stale", "--gpus", "1,2,5", "--seed", "0,1")
    assert done.returncode == 0, done.stderr
    records = harness.read(os.path.join(folder, "r.jsonl"))
    assert len(records) == 2 * (1 + 3 + 3)
    by = {}
    for r in records:
        by.setdefault((r["status"], r["config"]["strategy"]), []).append(r)
    assert len(by["ok", "serial"]) == 2 and len(by["ok", "tp"]) == len(by["ok", "tp-stale"]) == 4
    assert len(by["unsupported", "tp"]) == len(by["unsupported", "tp-stale"]) == 2
    assert all(r["error"]["rel_l2"] == 0 for r in by["ok", "serial"])
    assert all(r["error"]["rel_l2"] <= 5e-6 for r in by["ok", "tp"])
    assert len({r["error"]["noise_floor"] for r in by["ok", "tp"]}) == 2  # one a seed, from the cache
    assert len(os.listdir(os.path.join(folder, "r.jsonl.refs"))) == 2
    assert "tp-stale" in done.stdout and "unsupported" in done.stdout and "over 2" in done.stdout
    assert "[14/14]" in done.stderr


def a_damaged_reference_is_computed_again(folder):
    assert sweep(folder, "--strategy", "tp").returncode == 0
    refs = os.path.join(folder, "r.jsonl.refs")
    path = os.path.join(refs, os.listdir(refs)[0])
    with open(path, "r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\0\0\x80?")
    assert sweep(folder, "--strategy", "tp", "--gpus", "2", "--resume").returncode == 0
    records = harness.read(os.path.join(folder, "r.jsonl"))
    assert [r["error"]["rel_l2"] <= 5e-6 for r in records] == [True, True]


def resume_adds_what_is_missing(folder):
    out = os.path.join(folder, "r.jsonl")
    words = ["--strategy", "tp", "--gpus", "1,2,4"]
    assert sweep(folder, *words[:3], "1,2").returncode == 0
    assert sweep(folder, *words).returncode == 2  # the file has records
    with open(out, "a") as file:
        file.write('{"schema": "ditto.res')
    done = sweep(folder, *words, "--resume")
    assert done.returncode == 0 and "torn" in done.stderr and "2 of 3" in done.stderr, done.stderr
    assert [r["config"]["gpus"] for r in harness.read(out)] == [1, 2, 4]
    before = os.path.getsize(out)
    assert sweep(folder, *words, "--resume").returncode == 0 and os.path.getsize(out) == before
    # Measured another way it is another point.
    more = bench("sweep", *POINT[:-4], "--repeat", "2", "--warmup-runs", "0", *words, "--resume", "-o", out)
    assert more.returncode == 0 and len(harness.read(out)) == 6


def children_that_fail_are_records(folder):
    done = sweep(folder, "--strategy", "tp,serial", "--gpus", "2", env={"DITTO_TEST_FAIL": "1:3"})
    assert done.returncode == 1
    statuses = {r["config"]["strategy"]: r["status"]
                for r in harness.read(os.path.join(folder, "r.jsonl"))}
    assert statuses == {"tp": "error", "serial": "ok"}
    start = time.monotonic()
    done = sweep(folder, "--strategy", "tp", "--gpus", "2", "--point-timeout", "1", "--reference", "none",
                 env={"DITTO_TEST_STALL": "0:2:60000"}, name="t.jsonl")
    record = harness.read(os.path.join(folder, "t.jsonl"))[0]
    assert done.returncode == 1 and record["status"] == "timeout" and "--point-timeout" in record["reason"]
    assert time.monotonic() - start < 20
    done = bench("sweep", "--model", "dit-xl-2", "--resolution", "64", "--steps", "1", "--device", "ref",
                 "--repeat", "0", "--reference", "none", "--point-memory", "256", "-o",
                 os.path.join(folder, "m.jsonl"))
    record = harness.read(os.path.join(folder, "m.jsonl"))[0]
    assert done.returncode == 1 and record["status"] == "oom", record


def a_killed_child_is_a_record(folder):
    words = [harness.BENCH, "sweep", *POINT, "--strategy", "tp", "--gpus", "2", "--reference", "none",
             "-o", os.path.join(folder, "r.jsonl")]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, DITTO_TEST_STALL="0:2:60000"))
    child = wait_for_child(running.pid)
    os.kill(child, signal.SIGSEGV)
    running.communicate(timeout=60)
    record = harness.read(os.path.join(folder, "r.jsonl"))[0]
    assert running.returncode == 1 and record["status"] == "error" and "signal 11" in record["reason"]


def wait_for_child(parent):
    path = f"/proc/{parent}/task/{parent}/children"
    for _ in range(600):
        with open(path) as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/cmdline", "rb") as file:
                if b"\0run\0" in file.read():
                    return int(child)
        time.sleep(0.05)
    raise AssertionError("no child appeared")


def wait_for_handler(pid):
    """Until the process has exec'd and takes SIGINT itself; before, nothing of it runs."""
    bit = 1 << (signal.SIGINT - 1)
    for _ in range(2000):
        with open(f"/proc/{pid}/status") as file:
            fields = dict(line.split(":", 1) for line in file)
        if int(fields["SigCgt"], 16) & bit and fields["Name"].strip() == os.path.basename(harness.BENCH)[:15]:
            return
        time.sleep(0.005)
    raise AssertionError("the signal is never taken")


def interrupts_lose_nothing(folder):
    """SIGINT at random moments: every finished point stays, and resuming completes the sweep."""
    out = os.path.join(folder, "r.jsonl")
    words = [harness.BENCH, "sweep", *POINT, "--strategy", "tp,tp-stale", "--gpus", "1,2,3,4", "-o", out,
             "--resume"]
    finished, codes, seed = set(), set(), random.Random(1)
    for _ in range(20):
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for_handler(running.pid)
        time.sleep(seed.uniform(0.0, 0.4))
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        codes.add(running.returncode)
        if not os.path.exists(out):
            continue
        records = harness.read(out)
        now = {r["case_id"] for r in records if r["status"] == "ok"}
        assert finished <= now, "a finished point was lost"
        finished = now
    assert codes <= {130, 0} and 130 in codes, codes
    assert subprocess.run(words, capture_output=True, timeout=120).returncode == 0
    records = harness.read(out)
    assert len({r["case_id"] for r in records if r["status"] == "ok"}) == 8
    assert sum(r["status"] == "ok" for r in records) == 8
    assert all(r["status"] in ("ok", "interrupted") for r in records)


def one_writer_at_a_time(folder):
    words = [harness.BENCH, "sweep", *POINT, "--strategy", "tp", "--gpus", "2", "--reference", "none",
             "-o", os.path.join(folder, "r.jsonl")]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=dict(os.environ, DITTO_TEST_STALL="0:2:60000"))
    wait_for_child(running.pid)
    second = sweep(folder, "--strategy", "tp", "--resume")
    assert second.returncode == 2 and "another program" in second.stderr, second.stderr
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert [r["status"] for r in harness.read(os.path.join(folder, "r.jsonl"))] == ["interrupted"]


def works_from_another_folder(folder):
    done = bench("sweep", "--steps", "1", "--resolution", "8", "--repeat", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert harness.read(os.path.join(folder, "results/sweep.jsonl"))[0]["status"] == "ok"


harness.main([points_are_multiplied, json_files, records_and_references,
              a_damaged_reference_is_computed_again, resume_adds_what_is_missing,
              children_that_fail_are_records, a_killed_child_is_a_record, interrupts_lose_nothing,
              one_writer_at_a_time, works_from_another_folder])
