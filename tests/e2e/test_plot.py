"""bench plot: figures from a real sweep, remade from what lies beside them, and clear failures."""
import os
import re
import subprocess

import harness
from harness import bench


def results(folder):
    out = os.path.join(folder, "r.jsonl")
    done = bench("sweep", "--model", harness.TINY, "--resolution", "8,12", "--steps", "4", "--device",
                 "ref", "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,tp-stale",
                 "--gpus", "1,2,3", "--staleness", "0,1,2", "--warmup-steps", "2", "--stale-mode",
                 "all,peers", "-o", out)
    assert done.returncode == 0, done.stderr
    return out


def every_figure(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    done = bench("plot", out, "-o", figures)
    assert done.returncode == 0, done.stderr
    made = sorted(os.listdir(figures))
    labels = {"bytes-vs-gpus": ("Ranks", "(KiB)"), "error-per-step": ("Denoising step", "relative L2"),
              "error-vs-staleness": ("(steps)", "relative L2"), "latency-vs-gpus": ("Ranks", "(ms)")}
    names = sorted(labels)
    assert made == sorted(f"{n}.{e}" for n in names for e in ("dat", "gp", "pdf", "svg")), made
    for name in names:
        with open(os.path.join(figures, name + ".svg"), encoding="utf-8") as file:
            svg = file.read()
        assert svg.rstrip().endswith("</svg>")
        for part in ("8 pixels", "12 pixels", *labels[name]):
            assert part in svg, (name, part)
        with open(os.path.join(figures, name + ".pdf"), "rb") as file:
            assert file.read(5) == b"%PDF-"
    with open(os.path.join(figures, "error-vs-staleness.svg")) as file:
        svg = file.read()
    assert re.search(r"rgb\( *213, *94, *0\)", svg), "tp-stale has another colour"
    assert "peers, 2 ranks" in svg and "peers, 3 ranks" in svg


def data_are_the_records(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    assert bench("plot", out, "-o", figures, "--figure", "bytes-vs-gpus").returncode == 0
    records = [r for r in harness.read(out) if r["config"]["strategy"] == "tp"
               and r["config"]["resolution"] == "12" and r["config"]["gpus"] == 3]
    expected = records[0]["comm"]["max_sent_bytes"] / 4 / 1024
    with open(os.path.join(figures, "bytes-vs-gpus.dat")) as file:
        block = [b for b in file.read().split("\n\n\n") if '"tp"' in b and "12 pixels" in b][0]
    rows = [line.split() for line in block.splitlines() if line[0].isdigit()]
    assert [float(r[0]) for r in rows] == [1, 2, 3] and abs(float(rows[2][1]) - expected) < 1e-6


def figures_are_remade_by_gnuplot_alone(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    assert bench("plot", out, "-o", figures, "--format", "svg", "--figure", "error-per-step").returncode == 0
    subprocess.run(["gnuplot", "-e", "format='pdf'", "error-per-step.gp"], cwd=figures, check=True,
                   timeout=60)
    assert os.path.getsize(os.path.join(figures, "error-per-step.pdf")) > 500


def filters_and_notes(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    done = bench("plot", out, "-o", figures, "--where", "strategy=tp-stale,resolution=8")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(figures, "error-per-step.svg")) as file:
        svg = file.read()
    assert "12 pixels" not in svg and ">tp<" not in svg
    done = bench("plot", out, "-o", figures, "--where", "strategy=ring")
    assert done.returncode == 2 and "match" in done.stderr
    if len(os.sched_getaffinity(0)) < 3:
        with open(os.path.join(figures, "latency-vs-gpus.svg")) as file:
            assert "more ranks than cores" in file.read()


def gnuplot_missing_or_failing(folder):
    out, figures, tools = results(folder), os.path.join(folder, "f"), os.path.join(folder, "bin")
    os.mkdir(tools)
    done = bench("plot", out, "-o", figures, env={"PATH": tools})
    assert done.returncode == 1 and "gnuplot-nox" in done.stderr, done.stderr
    for script, part in (("exit 3", "exit code 3"), ("exit 0", "empty figure"),
                         ("echo cannot draw >&2; exit 1", "cannot draw")):
        fake = os.path.join(tools, "gnuplot")
        with open(fake, "w") as file:
            file.write("#!/bin/sh\n" + script + "\n")
        os.chmod(fake, 0o755)
        done = bench("plot", out, "-o", figures, env={"PATH": tools + ":" + os.environ["PATH"]})
        assert done.returncode == 1 and part in done.stderr, (script, done.stderr)
    assert not [n for n in os.listdir(figures) if n.endswith((".svg", ".pdf", ".log")) or "partial" in n]


def bad_requests(folder):
    out = os.path.join(folder, "r.jsonl")
    with open(out, "w") as file:
        file.write('{"schema":"other/1"}\n')
    for words, part in ((["--figure", "pie"], "no such figure"), (["--format", "gif"], "svg"),
                        (["--where", "tp"], "option=value")):
        done = bench("plot", out, *words)
        assert done.returncode in (1, 2) and (part in done.stderr or "schema" in done.stderr)
    done = bench("plot", out)
    assert done.returncode == 1 and "line 1" in done.stderr and "ditto.result/1" in done.stderr
    open(out, "w").close()
    done = bench("plot", out)
    assert done.returncode == 2 and "no records" in done.stderr


harness.main([every_figure, data_are_the_records, figures_are_remade_by_gnuplot_alone,
              filters_and_notes, gnuplot_missing_or_failing, bad_requests])
