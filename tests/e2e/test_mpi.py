"""Ranks as MPI processes: results equal to threads, golden cases, sweeps, and jobs that lose a process."""
import contextlib
import json
import os
import signal
import struct
import subprocess
import time

import numpy

import harness
from harness import BENCH, ROOT, bench, tensors

MPIRUN = ["mpirun", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
GOLDEN = os.path.join(ROOT, "tests/golden")
VIDEO_MODEL = os.path.join(ROOT, "tests/models/tiny-video.safetensors")
OPTIONS = ("steps", "class", "cfg_scale", "stale_mode", "warmup_steps", "staleness", "refresh", "patches",
           "stale_halves", "stale_blocks", "extrapolate")
# Long enough to lose a process in the middle.
LONG = ["--model", harness.TINY, "--resolution", "16", "--steps", "1000", "--device", "ref", "--repeat",
        "50", "--warmup-runs", "0", "--reference", "none"]


def mpirun(ranks, *words, env=None, timeout=120):
    return subprocess.run([*MPIRUN, "-n", str(ranks), BENCH, *map(str, words)], capture_output=True,
                          text=True, timeout=timeout, env=dict(os.environ, **(env or {})))


def run_small(ranks, *words):
    done = mpirun(ranks, "run", *harness.SMALL, *words)
    assert done.returncode == 0, done.stderr
    records = harness.parse(done.stdout)
    assert len(records) == 1
    return records[0]


def same_bits_and_bytes_as_threads(folder):
    for strategy, ranks in (("tp", 2), ("tp-sp", 3), ("tp-stale", 4), ("pipefusion", 2),
                            ("distrifusion", 4), ("ring", 2), ("ulysses", 4)):
        files = [os.path.join(folder, name) for name in ("threads", "mpi")]
        one = harness.run_small("--strategy", strategy, "--gpus", ranks, "--dump", files[0])
        other = run_small(ranks, "--strategy", strategy, "--dump", files[1])
        assert other["config"]["transport"] == "mpi" and other["config"]["gpus"] == ranks
        for key in ("sent_bytes", "claimed_bytes", "moved_bytes", "kinds"):
            assert one["comm"][key] == other["comm"][key], (strategy, key)
        a, b = (tensors(f)["trajectory"] for f in files)
        assert (a == b).all(), strategy


def golden_cases(folder):
    with open(os.path.join(GOLDEN, "manifest.json")) as file:
        cases = json.load(file)
    tried = 0
    for case in cases:
        if not case["model"].startswith("tiny.") or "frames" in case or case["strategy"] == "serial":
            continue
        ranks = case.get("gpus", 2)
        golden = tensors(os.path.join(GOLDEN, case["file"]))
        dump = os.path.join(folder, "dump")
        words = [w for key in OPTIONS if key in case for w in ("--" + key.replace("_", "-"), case[key])]
        height, width = golden["x_T"].shape[-2:]
        done = mpirun(ranks, "run", "--model", harness.TINY, "--init", os.path.join(GOLDEN, case["file"]),
                      "--resolution", f"{height}x{width}", "--strategy", case["strategy"], "--device",
                      "ref", "--repeat", 0, "--reference", "none", "--dump", dump, *words)
        assert done.returncode == 0, (case["file"], done.stderr)
        x, y = tensors(dump)["x_0"].astype(float), golden["trajectory"][-1].astype(float)
        error = numpy.linalg.norm(x - y) / numpy.linalg.norm(y)
        assert error < 5e-6, (case["file"], error)
        tried += 1
    assert tried > 10, tried


# Golden cases of serial, which every exact strategy reproduces: file, options, strategies.
IMAGES, VIDEO = "serial,tp,tp-sp,ulysses,ring,usp,tsp", "serial,tp,tp-sp,ulysses,ring,dsp"
EXACT = [("tiny-serial", ["--steps", 10, "--class", 2, "--resolution", 16], IMAGES),
         ("tiny-wide", ["--steps", 5, "--class", 0, "--resolution", "12x20"], IMAGES),
         ("video-t8", ["--steps", 5, "--class", 1, "--resolution", 16, "--frames", 8], VIDEO),
         ("video-t5", ["--steps", 5, "--class", 4, "--resolution", "8x12", "--frames", 5], VIDEO)]
RANKS = (1, 2, 3, 4)


def swept(command, *words):
    """(strategy, ranks) to record."""
    done = command("sweep", *words)
    assert done.returncode in (0, 1), done.stderr
    with open(words[-1]) as file:
        return {(r["config"]["strategy"], r["config"]["gpus"]): r for r in harness.parse(file.read())}


def exact_strategies_equal_golden(folder):
    """On 1 to 4 ranks, images and video, with the bytes of threads; what one refuses the other does."""
    for name, options, strategies in EXACT:
        golden = os.path.join(GOLDEN, name + ".safetensors")
        words = ["--model", VIDEO_MODEL if "video" in name else harness.TINY, *options, "--init", golden,
                 "--reference", golden, "--strategy", strategies, "--gpus", ",".join(map(str, RANKS)),
                 "--device", "ref", "--repeat", 1, "--warmup-runs", 0, "-o"]
        threads = swept(bench, *words, os.path.join(folder, name + ".threads"))
        mpi = swept(lambda *w: mpirun(max(RANKS), *w), *words, os.path.join(folder, name + ".mpi"))
        expected = {(s, n) for s in strategies.split(",") for n in RANKS if s != "serial" or n == 1}
        refused = {p for p in mpi if mpi[p]["status"] == "unsupported"}
        assert set(mpi) == set(threads) == expected and refused <= {("ulysses", 3)}, (set(mpi), refused)
        for point, record in mpi.items():
            assert record["status"] == threads[point]["status"], (name, point, record)
            if point in refused:
                continue
            assert record["error"]["rel_l2"] < 5e-6, (name, point, record["error"])
            for key in ("sent_bytes", "claimed_bytes", "moved_bytes", "kinds"):
                assert record["comm"][key] == threads[point]["comm"][key], (name, point, key)


def verify(folder):
    for model in (harness.TINY, VIDEO_MODEL):
        done = mpirun(3, "verify", "--device", "ref", "--model", model, timeout=600)
        assert done.returncode == 0 and "FAILED" not in done.stdout, done.stdout + done.stderr


def pieces_are_put_together(folder):
    done = mpirun(3, "run", *harness.SMALL, "--strategy", "tp-sp", env={"DITTO_TEST_MPI_PIECE": "100"})
    assert done.returncode == 0, done.stderr
    whole = harness.run_small("--strategy", "tp-sp", "--gpus", "3")
    piecewise = harness.parse(done.stdout)[0]
    assert piecewise["error"] == whole["error"] and piecewise["comm"]["kinds"] == whole["comm"]["kinds"]


def places_are_recorded(folder):
    mpi = run_small(2, "--strategy", "tp")["provenance"]["mpi"]
    assert "MPI" in mpi["library"] or "mpi" in mpi["library"].lower()
    assert mpi["hosts"] == [{"name": os.uname().nodename, "ranks": 2}]
    assert len(mpi["cores"]) == 2 and all(mpi["cores"])


def wide_model(path, factor):
    """The tiny model with its hidden size multiplied; random weights."""
    with open(harness.TINY, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    shapes = {name: [n * factor if n >= 64 and not (n == 256 and "t_embedder" in name) else n
                     for n in header[name]["shape"]] for name in header if name != "__metadata__"}
    sizes = {name: int(numpy.prod(shape)) for name, shape in shapes.items()}
    end = 0
    for name, shape in shapes.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + 4 * sizes[name]]}
        end += 4 * sizes[name]
    text = json.dumps(header).encode()
    random = numpy.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for size in sizes.values():
            file.write((random.standard_normal(size, dtype=numpy.float32) * 0.02).tobytes())
    return end


def a_rank_holds_its_shard(folder):
    """Beyond the shard: the program and its libraries, and one tensor while it is read."""
    model = os.path.join(folder, "wide.safetensors")
    size = wide_model(model, 12)
    done = mpirun(4, "run", "--model", model, "--resolution", 8, "--steps", 1, "--device", "ref", "--repeat",
                  1, "--warmup-runs", 0, "--strategy", "tp", "--reference", "none")
    assert done.returncode == 0, done.stderr
    for rank in harness.parse(done.stdout)[0]["memory_bytes"]["per_rank"]:
        beyond = rank["process_peak"] - rank["peak"]
        assert 0 < beyond < size / 3, (rank, size)


def ranks_are_the_launchers(folder):
    done = mpirun(2, "run", *harness.SMALL, "--strategy", "tp", "--gpus", 3)
    assert done.returncode == 2 and "mpirun started 2" in done.stderr and not done.stdout
    done = bench("run", *harness.SMALL, "--strategy", "tp", "--gpus", 2, "--transport", "mpi")
    assert done.returncode == 2 and "mpirun -n 2" in done.stderr and not done.stdout


def bad_launchers_are_told(folder):
    """One that starts no ranks is the point's failure, one that is not there the sweep's."""
    words = ["sweep", *harness.SMALL, "--strategy", "tp", "--gpus", "2", "--transport", "mpi", "-o"]
    done = bench(*words, os.path.join(folder, "a"), env={"PATH": folder})
    assert done.returncode == 1 and "cannot start mpirun: is it" in done.stderr, done.stderr
    done = bench(*words, os.path.join(folder, "b"), "--launcher", "mpirun -n 2")
    assert done.returncode == 2 and "{n}" in done.stderr, done.stderr
    for i, launcher in enumerate(("false {n}", "true {n}", "mpirun --no-such-option -n {n}")):
        out = os.path.join(folder, str(i))
        done = bench(*words, out, "--launcher", launcher)
        record = harness.read(out)[0]
        assert done.returncode == 1 and record["status"] == "error", record
        assert "no record" in record["reason"], record["reason"]


def other_commands_need_no_mpi(folder):
    """A library that cannot be initialised fails whoever tries."""
    broken = {"OMPI_MCA_pml": "none-such"}
    assert mpirun(2, "list", "devices", env=broken).stdout == bench("list", "devices").stdout
    done = mpirun(2, "run", *harness.SMALL, "--strategy", "tp", "--gpus", 2, "--transport", "threads",
                  env=broken)
    assert done.returncode == 0 and len(harness.parse(done.stdout)) == 1, done.stderr
    assert mpirun(2, "run", *harness.SMALL, "--strategy", "tp", env=broken).returncode != 0


def sweep_words(out, *more):
    return ["sweep", *harness.SMALL, "--strategy", "serial,tp", "--gpus", "1,2,3", "-o", out, *more]


def outcome(path):
    return sorted((r["case_id"], r["status"], json.dumps(r["error"])) for r in harness.read(path))


def sweeps_inside_and_outside_agree(folder):
    inside, outside = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
    assert mpirun(3, *sweep_words(inside)).returncode == 0
    assert bench(*sweep_words(outside, "--transport", "mpi")).returncode == 0
    assert outcome(inside) == outcome(outside)
    assert all(status == "ok" for _, status, _ in outcome(inside))
    assert bench(*sweep_words(outside, "--transport", "mpi", "--resume")).returncode == 0
    assert len(harness.read(outside)) == len(harness.read(inside))


def children(pid):
    """Processes of bench below pid, by rank."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                words = dict(w.split(b"=", 1) for w in file.read().split(b"\0") if b"=" in w)
            with open(f"/proc/{name}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if words.get(b"DITTO_E2E_JOB") == str(pid).encode() and b"OMPI_COMM_WORLD_RANK" in words and \
                state != "Z":
            found[int(words[b"OMPI_COMM_WORLD_RANK"])] = int(name)
    return found


def has_joined(pid):
    """MPI is initialised: the rank's service thread runs."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/comm") as file:
                if file.read() == "mpi-service\n":
                    return True
    return False


def start_and_wait_for_ranks(words, ranks, job, joined=True, **env):
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=dict(os.environ, DITTO_E2E_JOB=job, **env))
    deadline = time.monotonic() + 30
    found = {}
    while len(found) < ranks or (joined and not all(map(has_joined, found.values()))):
        assert time.monotonic() < deadline, (found, process.terminate(), process.communicate(timeout=60))
        time.sleep(0.02)
        found = children(job)
    time.sleep(1 if joined else 0)
    return process, found


def lose_in_sweep(folder, rank, how, *more, joined=True):
    """A sweep of two long points; a rank of the first gets a signal. The first record, and its delay."""
    out, job = os.path.join(folder, "out.jsonl"), f"{os.getpid()}.{how}.{rank}"
    words = [BENCH, "sweep", *LONG, "--strategy", "tp,tp-sp", "--transport", "mpi", "--gpus", "3", "-o", out,
             *more]
    process, found = start_and_wait_for_ranks(words, 3, job, joined)
    begin = time.monotonic()
    os.kill(found[rank], how)
    while not os.path.getsize(out) and time.monotonic() - begin < 60:
        time.sleep(0.1)
    took = time.monotonic() - begin
    process.terminate()
    process.communicate(timeout=60)
    for pid in children(job).values():
        os.kill(pid, signal.SIGKILL)
    return harness.read(out)[0], took


def killed_process_is_a_record(folder):
    record, took = lose_in_sweep(folder, 1, signal.SIGKILL)
    assert record["status"] == "error" and "rank 1" in record["reason"], record["reason"]
    assert took < 15, took


def killed_launcher_is_a_record(folder):
    """Its ranks end too."""
    out, job = os.path.join(folder, "out.jsonl"), f"{os.getpid()}.launcher"
    words = [BENCH, "sweep", *LONG, "--strategy", "tp", "--transport", "mpi", "--gpus", "2", "-o", out]
    process, found = start_and_wait_for_ranks(words, 2, job, TMPDIR=folder) # where mpirun leaves its files
    with open(f"/proc/{found[0]}/stat") as file:
        launcher = int(file.read().rsplit(")", 1)[1].split()[1])
    os.kill(launcher, signal.SIGKILL)
    process.communicate(timeout=60)
    deadline = time.monotonic() + 20
    while children(job):
        assert time.monotonic() < deadline, children(job)
        time.sleep(0.1)
    record = harness.read(out)[0]
    assert record["status"] == "error" and "signal 9" in record["reason"], record["reason"]


def stopped_process_is_named(folder):
    record, took = lose_in_sweep(folder, 2, signal.SIGSTOP, "--timeout", "1")
    assert record["status"] == "timeout" and "rank 2" in record["reason"], record["reason"]
    assert took < 15, took


def stopped_rank_0_is_named(folder):
    record, took = lose_in_sweep(folder, 0, signal.SIGSTOP, "--timeout", "1")
    assert record["status"] == "timeout" and "rank 0" in record["reason"], record["reason"]
    assert took < 20, took


def stop_at_the_start_is_noticed(folder):
    """The library itself would wait for ever; 10 s is the least that it is given."""
    record, took = lose_in_sweep(folder, 1, signal.SIGSTOP, "--timeout", "1", joined=False)
    assert record["status"] == "timeout", record["reason"]
    assert took < 30, took


def killed_job_is_completed_by_resume(folder):
    out, job = os.path.join(folder, "out.jsonl"), f"{os.getpid()}.resume"
    words = [*MPIRUN, "-n", "2", BENCH, "sweep", "--model", harness.TINY, "--resolution", "8", "--steps",
             "20", "--device", "ref", "--repeat", "20", "--strategy", "tp", "--seed", "0,1,2,3,4,5,6,7",
             "--reference", "none", "-o", out]
    process, found = start_and_wait_for_ranks(words, 2, job)
    os.kill(found[1], signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode != 0
    before = len(harness.read(out))
    assert before < 8, before
    assert subprocess.run([*words, "--resume"], capture_output=True, timeout=120).returncode == 0
    assert [r["status"] for r in harness.read(out)] == ["ok"] * 8


harness.main([same_bits_and_bytes_as_threads, golden_cases, exact_strategies_equal_golden, verify,
              pieces_are_put_together, places_are_recorded, a_rank_holds_its_shard,
              ranks_are_the_launchers, bad_launchers_are_told, other_commands_need_no_mpi,
              sweeps_inside_and_outside_agree, killed_process_is_a_record,
              killed_launcher_is_a_record, stopped_process_is_named,
              stopped_rank_0_is_named, stop_at_the_start_is_noticed,
              killed_job_is_completed_by_resume])
