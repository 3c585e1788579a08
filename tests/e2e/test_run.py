"""bench run: what a record holds, and that nothing in the environment changes it."""
import json
import os
import struct
import subprocess

import numpy

import harness
from harness import bench, run_small, tensors


def record_of_tp(folder):
    r = run_small("--strategy", "tp", "--gpus", "3")
    assert r["status"] == "ok" and r["config"]["strategy"] == "tp"
    comm = r["comm"]
    assert comm["sent_bytes"] == comm["claimed_bytes"] == comm["moved_bytes"]
    assert max(comm["sent_bytes"]) == comm["max_sent_bytes"] > 0
    assert comm["sync_steps"] == 3 and comm["stale_steps"] == 0
    assert sum(sum(k["sent_bytes"]) for k in comm["kinds"]) == sum(comm["sent_bytes"])
    assert r["error"]["rel_l2"] <= 5e-6 and len(r["error"]["per_step_rel_l2"]) == 3
    assert r["memory_bytes"]["peak"] >= r["memory_bytes"]["weights"] > 0
    assert len(r["latency_us"]["samples"]) == 1 and r["latency_us"]["ci95"] is None


def record_of_tp_stale(folder):
    r = run_small("--strategy", "tp-stale", "--stale-mode", "peers", "--gpus", "2")
    assert r["comm"]["sync_steps"] == 1 and r["comm"]["stale_steps"] == 2
    assert {k["phase"] for k in r["comm"]["kinds"]} == {"sync", "stale"}
    assert any(k["traffic"] == "noise" for k in r["comm"]["kinds"])
    assert r["error"]["rel_l2"] > 10 * r["error"]["noise_floor"]
    assert r["memory_bytes"]["per_rank"][0]["stale"] == r["memory_bytes"]["per_rank"][0]["claimed_stale"] > 0


def metrics_equal_numpy(folder):
    files = [os.path.join(folder, name) for name in ("serial", "stale")]
    run_small("--dump", files[0])
    r = run_small("--strategy", "tp-stale", "--gpus", "2", "--dump", files[1])
    reference, result = (tensors(f) for f in files)
    b, a = (t["x_0"].astype(numpy.float64) for t in (reference, result))
    norm = numpy.linalg.norm
    assert numpy.isclose(r["error"]["rel_l2"], norm(a - b) / norm(b), rtol=1e-9)
    assert numpy.isclose(r["error"]["max_abs"], abs(a - b).max(), rtol=1e-9)
    assert numpy.isclose(r["error"]["psnr_range"], b.max() - b.min(), rtol=1e-9)
    assert numpy.isclose(r["error"]["psnr_db"],
                         10 * numpy.log10((b.max() - b.min()) ** 2 / ((a - b) ** 2).mean()), rtol=1e-9)
    steps = [norm(x.astype(float) - y.astype(float)) / norm(y.astype(float))
             for x, y in zip(result["trajectory"], reference["trajectory"])]
    assert numpy.allclose(r["error"]["per_step_rel_l2"], steps, rtol=1e-9)
    assert r["error"]["ssim"] is None and "11" in r["error"]["ssim_reason"]
    assert (result["trajectory"][-1] == result["x_0"]).all() and result["x_0"].shape == (2, 8, 8)


def golden_cases(folder):
    """Start noise from a file, result into a file: every small reference case of a built-in strategy."""
    golden = os.path.join(harness.ROOT, "tests/golden")
    known = {line.split()[0] for line in bench("list", "strategies").stdout.splitlines()}
    with open(os.path.join(golden, "manifest.json")) as file:
        cases = [c for c in json.load(file) if c["model"] == "tiny.safetensors"
                 and c["strategy"] in known and c["strategy"] in ("serial", "tp-stale")]
    assert len(cases) >= 5
    options = ("stale_mode", "warmup_steps", "staleness", "refresh", "stale_halves", "stale_blocks",
               "extrapolate", "gpus")
    for case in cases:
        path, dump = os.path.join(golden, case["file"]), os.path.join(folder, "x.safetensors")
        words = ["--model", harness.TINY, "--init", path, "--steps", case["steps"], "--class",
                 case["class"], "--cfg-scale", case["cfg_scale"], "--strategy", case["strategy"],
                 "--device", "ref", "--repeat", 1, "--warmup-runs", 0, "--reference", "none", "--dump", dump]
        for key in options:
            if key in case:
                words += ["--" + key.replace("_", "-"), case[key]]
        done = bench("run", *words)
        assert done.returncode == 0, (case, done.stderr)
        record = harness.parse(done.stdout)[0]
        assert len(record["init_sha256"]) == 64
        expected, result = tensors(path)["trajectory"][-1].astype(float), tensors(dump)["x_0"]
        error = numpy.linalg.norm(result - expected) / numpy.linalg.norm(expected)
        assert error <= 5e-6, (case["file"], error)


def reference_from_file(folder):
    dump = os.path.join(folder, "serial.safetensors")
    run_small("--dump", dump)
    r = run_small("--strategy", "tp", "--gpus", "2", "--reference", dump)
    assert r["error"]["reference"] == dump and r["error"]["rel_l2"] < 5e-6
    assert r["error"]["noise_floor"] is None
    done = bench("run", "--model", harness.TINY, "--resolution", 16, "--steps", 3, "--repeat", 0,
                 "--reference", dump)
    assert done.returncode == 2 and "values" in done.stderr and not done.stdout


def reference_none_and_repeat_zero(folder):
    done = bench("run", "--model", harness.TINY, "--resolution", 8, "--steps", 2, "--repeat", 0,
                 "--reference", "none", "--device", "ref")
    r = harness.parse(done.stdout)[0]
    assert r["error"] is None and r["comm"] is None and r["latency_us"]["median"] is None
    assert r["memory_bytes"]["weights"] > 0


def six_samples_have_an_interval(folder):
    done = bench("run", "--model", harness.TINY, "--resolution", 8, "--steps", 1, "--repeat", 6,
                 "--device", "ref")
    latency = harness.parse(done.stdout)[0]["latency_us"]
    assert latency["ci95"] == [min(latency["samples"]), max(latency["samples"])]
    assert latency["median"] == sum(sorted(latency["samples"])[2:4]) / 2


def case_id_ignores_how(folder):
    first = run_small("--strategy", "tp", "--gpus", "2")
    same = run_small("--strategy", "tp", "--gpus", "2", "--threads", "1", "--timeout", "30",
                     "--reference", "none", "--staleness", "1", "--class", "0", "--transport", "threads")
    link = os.path.join(folder, "elsewhere.safetensors")
    os.symlink(harness.TINY, link)
    moved = bench("run", *[link if w == harness.TINY else w for w in harness.SMALL], "--strategy", "tp",
                  "--gpus", "2")
    assert first["case_id"] == same["case_id"] == harness.parse(moved.stdout)[0]["case_id"]
    others = [run_small("--strategy", "tp", "--gpus", "2", *more)["case_id"]
              for more in (["--seed", "1"], ["--class", "1"], ["--cfg-scale", "2"])]
    assert len({first["case_id"], *others}) == 4


def locale_changes_nothing(folder):
    plain = run_small("--cfg-scale", "2.5", env={"LC_ALL": "C"})
    comma = run_small("--cfg-scale", "2.5", env={"LC_ALL": "de_DE.UTF-8"})
    assert plain["config"]["cfg_scale"] == comma["config"]["cfg_scale"] == 2.5
    assert plain["error"] == comma["error"] and plain["case_id"] == comma["case_id"]


def secrets_stay_out(folder):
    done = bench("run", *harness.SMALL, env={"MY_TOKEN": "s3cr3t-value", "LANG": "C.UTF-8"})
    assert "s3cr3t" not in done.stdout + done.stderr and "MY_TOKEN" not in done.stdout
    assert harness.parse(done.stdout)[0]["provenance"]["environment"]["LANG"] == "C.UTF-8"


def bad_bytes_in_paths(folder):
    name = os.path.join(os.fsencode(folder), b"m\xff\xe9.safetensors")
    os.symlink(os.fsencode(harness.TINY), name)
    out = os.path.join(os.fsencode(folder), b"out\xfe.jsonl")
    words = [harness.BENCH.encode(), b"run", b"--model", name, b"--resolution", b"8", b"--steps", b"1",
             b"--repeat", b"1", b"--device", b"ref", b"-o", out]
    done = subprocess.run(words, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    record = harness.read(out)[0]
    assert record["config"]["model"].endswith("m\\xff\\xe9.safetensors")


def image_and_trace(folder):
    png, trace = os.path.join(folder, "a.png"), os.path.join(folder, "a.json")
    run_small("--strategy", "tp-stale", "--gpus", "2", "--image", png, "--trace", trace)
    with open(png, "rb") as file:
        head = file.read(26)
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    assert width == 3 * 192 + 2 * 4 and height == 192
    with open(trace) as file:
        events = json.load(file)["traceEvents"]
    spans = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in spans} == {0, 1} and all(e["dur"] >= 0 for e in spans)
    assert any("all_reduce" in e["name"] for e in spans)
    assert {e["args"].get("step") for e in spans} >= {0, 1, 2}
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert "compute" in names


def injected_failures_are_reported(folder):
    done = bench("run", *harness.SMALL, "--strategy", "tp", "--gpus", "3",
                 env={"DITTO_TEST_FAIL": "1:5"})
    record = harness.parse(done.stdout)[0]
    assert done.returncode == 1 and record["status"] == "error" and "rank 1" in record["reason"]
    done = bench("run", *harness.SMALL, "--strategy", "tp", "--gpus", "3", "--timeout", "0.3",
                 env={"DITTO_TEST_STALL": "2:3:2000"})
    record = harness.parse(done.stdout)[0]
    assert done.returncode == 1 and record["status"] == "timeout", record
    assert "2" in record["reason"], record["reason"]


def oversubscription_is_flagged(folder):
    done = subprocess.run(["taskset", "-c", str(min(os.sched_getaffinity(0))), harness.BENCH, "run",
                           *harness.SMALL, "--strategy", "tp", "--gpus", "2"], capture_output=True,
                          text=True, timeout=60)
    record = harness.parse(done.stdout)[0]
    assert record["latency_us"]["oversubscribed"] is True
    assert record["provenance"]["host"]["usable_cores"] == 1


def output_is_appended(folder):
    out = os.path.join(folder, "r.jsonl")
    for _ in range(2):
        assert bench("run", *harness.SMALL, "-o", out).returncode == 0
    assert len(harness.read(out)) == 2
    with open(out, "a") as file:
        file.write('{"torn')
    done = bench("run", *harness.SMALL, "-o", out)
    assert done.returncode == 0 and "torn" in done.stderr
    assert len(harness.read(out)) == 3


harness.main([record_of_tp, record_of_tp_stale, metrics_equal_numpy, golden_cases, reference_from_file,
              reference_none_and_repeat_zero, six_samples_have_an_interval, case_id_ignores_how,
              locale_changes_nothing, secrets_stay_out, bad_bytes_in_paths, image_and_trace,
              injected_failures_are_reported, oversubscription_is_flagged, output_is_appended])
