"""Wrong usage and bad files: a clear message, the right exit code, and no record where none belongs."""
import os
import resource
import shutil
import subprocess

import harness
from harness import bench

GOOD = ["--model", harness.TINY, "--resolution", "8", "--steps", "1", "--device", "ref"]


def refused(words, *parts):
    """Exit 2, no record, and a message with all parts."""
    done = bench(*words)
    assert done.returncode == 2, (words, done.returncode, done.stderr)
    assert done.stdout == "", done.stdout
    for part in parts:
        assert part in done.stderr, (words, part, done.stderr)


def failed(words, status, *parts):
    """Exit 1 and a record with status and reason."""
    done = bench(*words)
    assert done.returncode == 1, (words, done.returncode, done.stderr)
    record = harness.parse(done.stdout)[0]
    assert record["status"] == status, record["status"]
    for part in parts:
        assert part in record["reason"], (words, part, record["reason"])


def commands_and_options(folder):
    refused([], "--help")
    refused(["runn"], "nearest is run")
    refused(["run", "--stale-mod", "all"], "nearest is --stale-mode")
    refused(["run", "--gpus"], "needs a value")
    refused(["run", "--gpus", "1", "--gpus=2"], "twice")
    refused(["run", "operand"], "unexpected", "bench run")
    refused(["run", "-x"], "unknown option")
    refused(["verify", "--full=1"], "takes no value")
    refused(["list", "nothing"], "strategies", "devices")
    refused(["plot"], "usage: bench plot")


def values(folder):
    refused(["run", *GOOD, "--gpus", "0"], "1 to 1024")
    refused(["run", *GOOD, "--gpus", "two"], "integer")
    refused(["run", *GOOD, "--cfg-scale", "2,5"], "number")
    refused(["run", *GOOD, "--cfg-scale", "nan"], "number")
    refused(["run", *GOOD, "--strategy", "tq"], "serial", "tp-stale")
    refused(["run", *GOOD[:-2], "--device", "gpu"], "no such device", "ref")
    refused(["run", *GOOD, "--dtype", "fp8"], "fp32", "bf16")
    refused(["run", *GOOD, "--stale-blocks", "3-1", "--strategy", "tp-stale"], "stale-blocks")
    refused(["run", *GOOD[:2], "--resolution", "9", "--device", "ref"], "multiple of 2", "use 8")
    refused(["run", *GOOD, "--class", "99"], "classes 0 to")
    refused(["run", *GOOD, "--frames", "3"], "single images")
    refused(["run", *GOOD, "--cfg-degree", "2"], "cfg-scale")


def refusals_are_records(folder):
    failed(["run", *GOOD, "--strategy", "tp", "--gpus", "5"], "unsupported", "heads")
    failed(["run", *GOOD, "--strategy", "tp-stale", "--staleness", "2"], "unsupported", "warmup")
    failed(["run", *GOOD, "--gpus", "3"], "unsupported", "serial")


def outputs(folder):
    missing = os.path.join(folder, "no", "where")
    refused(["run", *GOOD, "-o", missing], "cannot write")
    refused(["run", *GOOD, "--dump", missing], "cannot write")
    refused(["run", *GOOD, "--image", missing], "cannot write")
    refused(["run", *GOOD, "--trace", missing], "cannot write")
    done = bench("run", *GOOD, "-o", "/dev/full")
    assert done.returncode in (1, 2) and "/dev/full" in done.stderr, done.stderr
    done = bench("sweep", *GOOD, "-o", "/proc/nowhere/x.jsonl")
    assert done.returncode != 0 and "/proc" in done.stderr and not done.stdout


def a_full_disk_keeps_whole_lines(folder):
    out = os.path.join(folder, "r.jsonl")
    assert bench("run", *GOOD, "--repeat", "1", "-o", out).returncode == 0
    size = os.path.getsize(out)

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
    done = subprocess.run([harness.BENCH, "run", *GOOD, "--repeat", "1", "-o", out],
                          capture_output=True, text=True, timeout=60, preexec_fn=limit)
    assert done.returncode != 0
    assert os.path.getsize(out) == size, "a torn line stayed"
    harness.read(out)


def weights(folder):
    def case(name, data, *parts):
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(data)
        failed(["run", "--model", path, "--resolution", "8", "--device", "ref"], "error", path, *parts)
    with open(harness.TINY, "rb") as file:
        good = file.read()
    case("empty.safetensors", b"")
    case("short.safetensors", good[:-1])
    case("header.safetensors", b"\xff" * 8 + good[8:])
    case("lfs.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "LFS")
    case("page.safetensors", b"<!DOCTYPE html><html></html>", "HTML")
    case("model.pt", b"PK\x03\x04" + b"\0" * 64)
    failed(["run", "--model", folder, "--resolution", "8"], "error", "without a model")
    failed(["run", "--model", "/nonexistent/model.safetensors"], "error", "nonexistent")
    shutil.copy(harness.TINY, os.path.join(folder, "good.safetensors"))
    assert bench("run", *GOOD[2:], "--model", os.path.join(folder, "good.safetensors")).returncode == 0


def help_reads_like_a_manual(folder):
    assert bench("--help").returncode == 0
    for command in ("run", "sweep", "verify", "plot", "list", "info"):
        done = bench(command, "--help")
        assert done.returncode == 0 and not done.stderr
        for part in ("Usage", "Examples", f"bench {command}"):
            assert part in done.stdout, (command, part)
        assert max(map(len, done.stdout.splitlines())) <= 100, command
    text = bench("run", "--help").stdout
    for part in ("--staleness", "Default: 20", "Unit: pixels", "fp32, bf16, fp16", "Used by: tp-stale"):
        assert part in text, part


def info_and_list(folder):
    text = bench("info", harness.TINY).stdout
    for part in ("blocks.0.attn.qkv.weight", "[192, 64]", "heads 4", "0 values not finite", "sha256"):
        assert part in text, part
    assert "hidden 384" in bench("info", "dit-s-2").stdout
    assert bench("info", "/nonexistent.safetensors").returncode == 1
    for kind, part in (("strategies", "tp-stale"), ("devices", "ref"), ("transports", "threads"),
                       ("models", "dit-xl-2"), ("platforms", "")):
        done = bench("list", kind)
        assert done.returncode == 0 and part in done.stdout


def test_hooks_are_checked(folder):
    done = bench("run", *GOOD, env={"DITTO_TEST_FAIL": "nonsense"})
    assert done.returncode == 2 and "DITTO_TEST_FAIL" in done.stderr


harness.main([commands_and_options, values, refusals_are_records, outputs,
              a_full_disk_keeps_whole_lines, weights, help_reads_like_a_manual, info_and_list,
              test_hooks_are_checked])
