"""Options of tp-stale against an independent float64 implementation (tests/reference/stale_tp.py)."""
import os
import sys

import numpy

import harness

sys.path.insert(0, os.path.join(harness.ROOT, "tests/reference"))
import stale_tp  # noqa: E402

FP32_TOLERANCE = 5e-6  # docs/measuring.md
GOLDEN = os.path.join(harness.ROOT, "tests/golden")
FASHION = os.path.join(harness.ROOT, "tests/models/dit-fashion.safetensors")


def distance(a, b):
    return float(numpy.linalg.norm(a - b) / numpy.linalg.norm(b))


def run(folder, model, init, device, options):
    """The last latent by bench, and by the reference."""
    x = stale_tp.read(init)[0]["x_T"]
    dump = os.path.join(folder, "x.safetensors")
    words = ["run", "--model", model, "--init", init, "--resolution", f"{x.shape[1]}x{x.shape[2]}",
             "--device", device, "--strategy", "tp-stale", "--repeat", 0, "--dump", dump]
    for name, value in options.items():
        text = "-".join(map(str, value)) if isinstance(value, tuple) else value
        words += ["--" + name.rstrip("_").replace("_", "-"), text]
    done = harness.bench(*words)
    assert done.returncode == 0, done.stderr
    expected = stale_tp.Sampler(stale_tp.Model(model), **options).run(x)
    return harness.tensors(dump)["x_0"].astype(float), expected[-1]


def compare(folder, cases, model=harness.TINY, init="tiny-serial.safetensors", device="ref"):
    for options in cases:
        got, expected = run(folder, model, os.path.join(GOLDEN, init), device, options)
        error = distance(got, expected)
        print(f"       {error:.1e}", options)
        assert error <= FP32_TOLERANCE, (error, options)


TINY = dict(steps=6, class_=2)


def reference_equals_golden_files(folder):
    """The reference itself, where files from another implementation exist."""
    with open(os.path.join(GOLDEN, "manifest.json")) as file:
        manifest = {case["file"]: case for case in harness.json.load(file)}
    for name, options in [("tiny-tp-stale-all", dict(gpus=1)), ("tiny-all-s2-extrapolate", dict(gpus=2)),
                          ("tiny-tp-stale-peers-n3", dict(gpus=3))]:
        case = manifest[name + ".safetensors"]
        file = stale_tp.read(os.path.join(GOLDEN, name + ".safetensors"))[0]
        options = {key: case[key] for key in case if key in stale_tp.DEFAULTS} | options
        got = stale_tp.Sampler(stale_tp.Model(harness.TINY), class_=case["class"], **options).run(file["x_T"])
        assert distance(got, file["trajectory"]) < 1e-6, (name, options)


def repair(folder):
    compare(folder, [
        {**TINY, "gpus": 2, "repair": 1},
        {**TINY, "gpus": 3, "repair": 1, "extrapolate": 1.0},
        {**TINY, "gpus": 2, "repair": 3, "extrapolate": 0.5, "refresh": 3, "warmup_steps": 2},
        {**TINY, "gpus": 4, "repair": 1, "stale_mode": "peers"},
        {**TINY, "gpus": 3, "repair": 2, "stale_mode": "peers", "extrapolate": 0.7, "cfg_scale": 2.0},
        {**TINY, "gpus": 2, "repair": 2, "stale_blocks": (1, 2), "stale_halves": "attn"},
        {**TINY, "gpus": 1, "repair": 100}])


def own_change(folder):
    compare(folder, [
        {**TINY, "gpus": 2, "stale_mode": "peers", "own_change": 1.5},
        {**TINY, "gpus": 3, "stale_mode": "peers", "own_change": 2.0, "refresh": 2},
        {**TINY, "gpus": 4, "stale_mode": "peers", "own_change": 0.5, "extrapolate": 0.7, "staleness": 2,
         "warmup_steps": 2},
        {**TINY, "gpus": 2, "stale_mode": "peers", "own_change": 2.0, "repair": 1, "extrapolate": 1.0}])


def time_of_the_sampler(folder):
    compare(folder, [
        {**TINY, "gpus": 1, "extrapolate": 0.5, "extrapolate_in": "logsnr"},
        {**TINY, "gpus": 2, "extrapolate": 0.7, "extrapolate_in": "angle", "refresh": 2},
        {**TINY, "gpus": 3, "extrapolate": 0.5, "extrapolate_in": "logsnr", "staleness": 2,
         "warmup_steps": 2, "stale_mode": "peers"}])


def trained_weights(folder):
    compare(folder, [
        dict(steps=20, class_=7, gpus=2, repair=1, extrapolate=1.0),
        dict(steps=20, class_=7, gpus=4, repair=1, extrapolate=1.0, stale_mode="peers")],
        FASHION, "fashion32-serial.safetensors", harness.bench("list", "devices").stdout.split()[0])


def coded_changes(folder):
    """Rounding to a code is not continuous: a value within rounding of the middle between two levels
    may fall on either side, so the two runs differ by some whole steps. What can be asked: far less than
    what coding does, and an error of the same size."""
    init = os.path.join(GOLDEN, "tiny-serial.safetensors")
    x = stale_tp.read(init)[0]["x_T"]
    for options in [{**TINY, "gpus": 2, "code_bits": 8}, {**TINY, "gpus": 3, "code_bits": 4},
                    {**TINY, "gpus": 4, "code_bits": 3, "refresh": 3, "cfg_scale": 2.0}]:
        options["stale_mode"] = "coded"
        got, expected = run(folder, harness.TINY, init, "ref", options)
        fresh = stale_tp.Sampler(stale_tp.Model(harness.TINY), **{**options, "staleness": 0}).run(x)[-1]
        apart, error, same = distance(got, expected), distance(got, fresh), distance(expected, fresh)
        print(f"       apart {apart:.1e}, errors {error:.1e} {same:.1e}", options)
        assert error > 20 * FP32_TOLERANCE and apart < 0.3 * same and abs(error - same) < 0.2 * same


harness.main([reference_equals_golden_files, repair, own_change, time_of_the_sampler, trained_weights,
              coded_changes])
