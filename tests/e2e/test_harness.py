"""What harnesses get wrong in public: hung ranks, NaN in JSON, secrets, full disks, odd paths."""
import json
import os
import re
import resource
import signal
import struct
import subprocess
import time

import harness
from harness import bench

POINT = ["--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref", "--repeat", "1",
         "--warmup-runs", "0"]


def sweep(folder, *words, env=None, name="r.jsonl"):
    out = os.path.join(folder, name)
    done = bench("sweep", *POINT, *words, "-o", out, env=env)
    return done, out


def spoiled_model(folder):
    """The tiny model with one weight that is not a number."""
    with open(harness.TINY, "rb") as file:
        data = bytearray(file.read())
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    name = next(n for n, t in header.items() if n.endswith("qkv.weight") and t["dtype"] == "F32")
    at = 8 + size + header[name]["data_offsets"][0]
    data[at:at + 4] = struct.pack("<f", float("nan"))
    path = os.path.join(folder, "spoiled.safetensors")
    with open(path, "wb") as file:
        file.write(data)
    return path


def not_a_number_never_reaches_json(folder):
    out = os.path.join(folder, "r.jsonl")
    model = spoiled_model(folder)
    for strategy in ("serial", "tp", "tp-stale"):
        bench("run", *[model if w == harness.TINY else w for w in POINT], "--strategy", strategy, "--gpus",
              1 if strategy == "serial" else 2, "-o", out)
    records = harness.read(out)  # refuses NaN and Infinity
    assert len(records) == 3
    for record in records:
        if record["status"] == "ok":
            error = record["error"]
            assert error is None or (error["rel_l2"] is None and error["rel_l2_reason"]), error
    for words in (["export", out, "--json"], ["export", out, "--csv"], ["compare", out, out]):
        done = bench(*words)
        assert not re.search(r"\b(nan|inf)\b", done.stdout, re.I), (words, done.stdout)


def one_rank_divides_by_nothing(folder):
    record = harness.run_small("--strategy", "tp", "--gpus", "1", "--mode", "all")
    assert record["comm"]["sent_bytes"] == record["comm"]["claimed_bytes"] == [0]
    assert record["overlap"] is None and record["overlap_reason"] == "nothing is sent"
    assert record["comm_exposed_us"]["max"] is not None
    done, out = sweep(folder, "--strategy", "tp", "--gpus", "1")
    assert done.returncode == 0 and "nan" not in done.stdout.lower() and "inf" not in done.stdout.lower()


def a_rank_that_stands_still_is_named(folder):
    done, out = sweep(folder, "--strategy", "tp", "--gpus", "3", "--timeout", "0.5", "--reference", "none",
                      env={"DITTO_TEST_STALL": "2:3:30000"})
    record = harness.read(out)[0]
    assert done.returncode == 1 and record["status"] == "timeout" and "rank 2" in record["reason"], record


def a_stopped_process_times_out(folder):
    """kill -STOP of a whole point: the sweep's own deadline ends it."""
    out = os.path.join(folder, "r.jsonl")
    words = [harness.BENCH, "sweep", *POINT[:-4], "--repeat", "100000", "--strategy", "tp", "--gpus", "2",
             "--point-timeout", "3", "--reference", "none", "-o", out]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    path, child, start = f"/proc/{running.pid}/task/{running.pid}/children", None, time.monotonic()
    while child is None and time.monotonic() < start + 30:
        with open(path) as file:
            child = next(iter(file.read().split()), None)
        time.sleep(0.02)
    os.kill(int(child), signal.SIGSTOP)
    running.communicate(timeout=60)
    record = harness.read(out)[0]
    assert running.returncode == 1 and record["status"] == "timeout", record
    assert not os.path.exists(f"/proc/{child}"), "the stopped child is still there"


def retry_runs_failures_again(folder):
    words = ["--strategy", "tp,serial", "--gpus", "1,2"]
    done, out = sweep(folder, *words, env={"DITTO_TEST_FAIL": "1:3"})
    assert done.returncode == 1
    assert sorted(r["status"] for r in harness.read(out)) == ["error", "ok", "ok"]
    for more, count in (([], 3), (["--retry", "timeout,oom"], 3), (["--retry", "oom,error"], 4),
                        (["--retry", "error"], 4)):
        done, _ = sweep(folder, *words, "--resume", *more)
        assert done.returncode == 0 and len(harness.read(out)) == count, (more, done.stderr)
    assert harness.read(out)[-1]["status"] == "ok"
    for more, part in ((["--retry", "error"], "--resume"), (["--resume", "--retry", "errors"], "outcomes are")):
        done, _ = sweep(folder, *words, *more, name="x.jsonl")
        assert done.returncode == 2 and part in done.stderr


def a_dry_run_knows_the_memory(folder):
    """The estimate is the peak that the run then has, but for the workspace of the device's library."""
    words = ["--strategy", "serial,tp,tp-stale,pipefusion,ulysses,ring", "--patches", "2", "--gpus", "2"]
    planned = bench("sweep", *POINT, *words, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    estimate = {line.split()[0]: line for line in planned.stdout.splitlines()[:-1]}
    done, out = sweep(folder, *words)
    records = harness.read(out)
    assert {r["case_id"] for r in records} == set(estimate) and not os.path.exists("results/sweep.jsonl.tmp")
    for record in records:
        line = estimate[record["case_id"]]
        if record["status"] == "unsupported":
            assert "refused" in line
            continue
        memory = record["memory_bytes"]
        mib = float(re.search(r"([\d.]+) MiB$", line)[1])
        assert abs(mib - memory["peak"] / 2 ** 20) <= 0.01 + memory["workspace"] / 2 ** 20, (line, memory)


SIMULATED = ["--model", "dit-s-2", "--device", "sim", "--platform", "h100-nvlink", "--dtype", "bf16",
             "--resolution", "256", "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,ulysses",
             "--gpus", "1,2,3"]


def simulated_points_in_parallel(folder):
    """The same records as one after the other; measured points are never at the same time."""
    records = []
    for name, jobs in (("one.jsonl", []), ("many.jsonl", ["-j", "3"])):
        out = os.path.join(folder, name)
        done = bench("sweep", *SIMULATED, *jobs, "-o", out)
        assert done.returncode == 0, done.stderr
        records.append({r["case_id"]: dict(r, provenance=None) for r in harness.read(out)})
    assert records[0] == records[1] and len(records[0]) == 7
    done, out = sweep(folder, "--strategy", "tp", "--gpus", "1,2", "--jobs", "4")
    assert done.returncode == 0 and "one at a time" in done.stderr and len(harness.read(out)) == 2
    left = os.path.join(folder, "left")
    os.mkdir(left)
    assert bench("sweep", *SIMULATED, "-j", "2", "-o", os.path.join(folder, "x.jsonl"),
                 env={"TMPDIR": left}).returncode == 0
    assert os.listdir(left) == []


def parallel_points_are_interrupted(folder):
    out = os.path.join(folder, "r.jsonl")
    words = [harness.BENCH, "sweep", *SIMULATED, "--resolution", "256,512", "--steps", "40,80", "-j", "3", "-o",
             out, "--resume"]
    words.remove("--resolution")
    words.remove("256")
    codes = set()
    for wait in (0.05, 0.3, 0.6):
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(wait)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
        codes.add(running.returncode)
    assert codes <= {0, 130} and 130 in codes, codes
    assert subprocess.run(words, capture_output=True, timeout=300).returncode == 0
    ids = [r["case_id"] for r in harness.read(out) if r["status"] in ("ok", "unsupported")]
    assert len(ids) == len(set(ids)) == 28


def secrets_stay_out_of_everything(folder):
    env = {"API_TOKEN": "hunter2-secret", "LD_DITTO_PASSWORD": "hunter2-secret"}
    done, out = sweep(folder, "--strategy", "serial,tp", "--gpus", "1,2", env=env)
    outputs = [done]
    page = os.path.join(folder, "page.html")
    for words in (["plot", out, "-o", os.path.join(folder, "f"), "--format", "svg"],
                  ["report", out, "-o", page], ["export", out, "--csv"], ["export", out, "--json"],
                  ["export", out, "--latex"], ["compare", out, out],
                  ["run", *POINT, "--trace", os.path.join(folder, "t.json"), "--dump",
                   os.path.join(folder, "d.safetensors")], ["list"], ["sweep", *POINT, "--dry-run"]):
        outputs.append(bench(*words, env=env))
        assert outputs[-1].returncode == 0, (words, outputs[-1].stderr)
    for done in outputs:
        assert "hunter2" not in done.stdout + done.stderr and "API_TOKEN" not in done.stdout + done.stderr
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                data = file.read()
            assert b"hunter2" not in data and b"API_TOKEN" not in data, name


def a_full_disk_leaves_nothing_half_written(folder):
    _, out = sweep(folder, "--strategy", "serial,tp", "--gpus", "1,2")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    before = sorted(os.listdir(folder))
    for words in (["report", out, "-o", "page.html"], ["export", out, "--json", "-o", "x.json"],
                  ["plot", out, "-o", ".", "--figure", "bytes-vs-gpus", "--format", "svg"],
                  ["run", *POINT, "--dump", "d.safetensors"], ["run", *POINT, "--trace", "t.json"],
                  ["run", *POINT, "--image", "i.png", "--strategy", "tp-stale", "--gpus", "2"]):
        done = subprocess.run([harness.BENCH, *words], capture_output=True, text=True, timeout=60, cwd=folder,
                              preexec_fn=limit)
        assert done.returncode == 1 and done.stderr, (words, done.returncode, done.stderr)
        left = [n for n in sorted(os.listdir(folder)) if n not in before and not n.endswith((".dat", ".gp"))]
        assert not left, (words, left)
    assert bench("run", *POINT, "-o", "/dev/full").returncode == 1
    for words in (["export", out, "--json", "-o", "/dev/full"], ["report", out, "-o", "/dev/full"]):
        done = bench(*words)
        assert done.returncode == 1 and "/dev/full" in done.stderr, (words, done.stderr)
    assert not os.path.isfile("/dev/full")


def devices_are_not_replaced(folder):
    pipe = os.path.join(folder, "pipe")
    os.mkfifo(pipe)
    _, out = sweep(folder, "--strategy", "serial")
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    assert bench("export", out, "--json", "-o", pipe).returncode == 0
    assert json.loads(reader.communicate(timeout=30)[0]) == harness.read(out)
    assert sorted(os.listdir(folder)) == ["pipe", "r.jsonl", "r.jsonl.refs"]


def odd_paths(folder):
    """Bytes that are no text, spaces, quotes and markup in names of models, files and folders."""
    base = os.path.join(os.fsencode(folder), b"a \xff'\"<b>&$(x)\n")
    os.mkdir(base)
    model, out = os.path.join(base, b"m\xe9.safetensors"), os.path.join(base, b"r\xfe.jsonl")
    os.symlink(os.fsencode(harness.TINY), model)

    def run(*words):
        done = subprocess.run([harness.BENCH.encode(), *words], capture_output=True, timeout=120)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout
    point = [w.encode() for w in POINT]
    point[1] = model
    run(b"sweep", *point, b"--strategy", b"serial,tp", b"--gpus", b"1,2", b"-o", out)
    run(b"run", *point, b"--image", os.path.join(base, b"i.png"), b"-o", out)
    assert "m\\xe9" in harness.read(out)[0]["config"]["model"]
    run(b"plot", out, b"-o", os.path.join(base, b"f\xfd"), b"--format", b"svg")
    page = os.path.join(base, b"p.html")
    run(b"report", out, b"-o", page)
    run(b"compare", out, out)
    run(b"export", out, b"--latex")
    with open(page, encoding="utf-8") as file:  # valid text
        assert "<b>&" not in file.read()


def torn_last_lines(folder):
    _, out = sweep(folder, "--strategy", "serial,tp", "--gpus", "1,2")
    with open(out, "rb") as file:
        whole = file.read()
    lines = whole.splitlines(keepends=True)
    for cut in (1, len(lines[-1]) // 2, len(lines[-1]) - 1):
        with open(out, "wb") as file:
            file.write(whole[:len(whole) - cut])
        done = bench("export", out, "--json")
        assert done.returncode == 0 and len(json.loads(done.stdout)) == len(lines) - 1 and "torn" in done.stderr
        with open(out, "rb") as file:
            assert len(file.read()) == len(whole) - cut  # reading changes nothing


def affinity_is_the_real_mask(folder):
    core = str(min(os.sched_getaffinity(0)))
    out = os.path.join(folder, "r.jsonl")
    done = subprocess.run(["taskset", "-c", core, harness.BENCH, "sweep", *POINT, "--strategy", "tp", "--gpus",
                           "1,2", "-o", out], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    crowded = {r["config"]["gpus"]: r["latency_us"]["oversubscribed"] for r in harness.read(out)}
    assert crowded == {1: False, 2: True} and "more ranks than cores" in done.stdout
    done = subprocess.run(["taskset", "-c", core, harness.BENCH, "run", *POINT, "--strategy", "tp", "--gpus", "2"],
                          capture_output=True, text=True, timeout=120)
    assert "--repeat 0" in done.stderr and "cores" in done.stderr  # a warning ends with what to do


def warnings_name_the_option(folder):
    assert "--repeat 7" in bench("run", *POINT).stderr
    done = bench("run", *POINT[:-4], "--repeat", "40", "--warmup-runs", "0", "--reference", "none")
    latency = harness.parse(done.stdout)[0]["latency_us"]
    samples = latency["samples"]
    middle = sorted(samples)[19:21]
    median = sum(middle) / 2
    spread = sorted(abs(s - median) for s in samples)
    deviation = (spread[19] + spread[20]) / 2
    expected = [i for i, s in enumerate(samples) if 0.6745 * abs(s - median) / deviation > 3.5]
    assert latency["outliers"] == expected and len(samples) == 40
    wide = (latency["ci95"][1] - latency["ci95"][0]) / latency["median"] > 0.1
    assert ("noisy machine" in done.stderr) == wide and ("are outliers" in done.stderr) == bool(expected)


def every_field_is_described(folder):
    with open(os.path.join(harness.ROOT, "docs/record.md"), encoding="utf-8") as file:
        text = file.read()
    words = set(re.findall(r"[A-Za-z0-9_]+", " ".join(re.findall(r"`([^`]*)`", text))))

    def names(schema):
        for name, below in schema.get("properties", {}).items():
            yield name
            yield from names(below)
        for below in [*([schema["items"]] if "items" in schema else []), *schema.get("anyOf", [])]:
            yield from names(below)
    with open(os.path.join(harness.ROOT, "results/schema.json"), encoding="utf-8") as file:
        missing = {n for n in names(json.load(file)) if not n.endswith("_reason")} - words
    assert not missing, missing


harness.main([not_a_number_never_reaches_json, one_rank_divides_by_nothing, a_rank_that_stands_still_is_named,
              a_stopped_process_times_out, retry_runs_failures_again, a_dry_run_knows_the_memory,
              simulated_points_in_parallel, parallel_points_are_interrupted,
              secrets_stay_out_of_everything, a_full_disk_leaves_nothing_half_written, devices_are_not_replaced,
              odd_paths, torn_last_lines, affinity_is_the_real_mask, warnings_name_the_option,
              every_field_is_described])
