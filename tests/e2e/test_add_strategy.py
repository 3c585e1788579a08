"""docs/add-a-strategy.md tells the truth: the toy on that page, added by its three edits, builds and passes."""
import os
import re
import shutil
import subprocess

import harness
from harness import ROOT, SMALL, parse

SOURCES = ["bench", "strategies", "kernels", "common", "tests/meson.build", "meson.build",
           "meson_options.txt", "results", "plots", "models/dit-fashion.safetensors"]


def copy_sources(folder):
    for name in SOURCES:
        source, target = os.path.join(ROOT, name), os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)


def edit(folder, name, before, after):
    path = os.path.join(folder, name)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.count(before) == 1, f"{name}: {before!r} occurs {text.count(before)} times"
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(before, after))


def run(*words, cwd):
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


def toy_of_the_page(folder):
    with open(os.path.join(ROOT, "docs/add-a-strategy.md"), encoding="utf-8") as file:
        code = re.search(r"```c\n(.*?)```", file.read(), re.S).group(1)
    copy_sources(folder)
    with open(os.path.join(folder, "strategies/toy.c"), "w", encoding="utf-8") as file:
        file.write(code)
    edit(folder, "strategies/strategy.h", "extern const struct strategy strategy_serial,",
         "extern const struct strategy strategy_toy, strategy_serial,")
    edit(folder, "strategies/strategy.c", "    &strategy_tp,\n", "    &strategy_toy,\n    &strategy_tp,\n")
    edit(folder, "meson.build", "  'strategies/tp.c',\n", "  'strategies/toy.c',\n  'strategies/tp.c',\n")
    build = os.path.join(folder, "build")
    run("meson", "setup", build, folder, "-Dtests=disabled", "-Dwerror=true", "-Dcuda=disabled", cwd=folder)
    run("meson", "compile", "-C", build, "bench", cwd=folder)
    record = parse(run("build/bench", "run", *SMALL, "--strategy", "toy", "--gpus", "3", cwd=folder))[-1]
    assert record["status"] == "ok" and record["error"]["rel_l2"] == 0
    assert record["comm"]["sent_bytes"] == record["comm"]["claimed_bytes"]
    assert sum(record["comm"]["sent_bytes"]) > 0
    assert "toy" in run("build/bench", "list", "strategies", cwd=folder)


harness.main([toy_of_the_page])
