"""bench plot: figures from a real sweep, remade from what lies beside them, and clear failures."""
import json
import os
import re
import subprocess

import harness
from harness import bench


CACHE = {}


def results(folder):
    """One sweep serves all checks."""
    out = os.path.join(folder, "r.jsonl")
    if CACHE:
        with open(out, "w", encoding="utf-8") as file:
            file.write(CACHE["text"])
        return out
    done = bench("sweep", "--model", harness.TINY, "--resolution", "8,12", "--steps", "4", "--device",
                 "ref", "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,tp-stale",
                 "--gpus", "1,2,3", "--staleness", "0,1,2", "--warmup-steps", "2", "--stale-mode",
                 "all,peers", "-o", out)
    assert done.returncode == 0, done.stderr
    with open(out, encoding="utf-8") as file:
        CACHE["text"] = file.read()
    return out


def every_figure(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    done = bench("plot", out, "-o", figures)
    assert done.returncode == 0, done.stderr
    made = sorted(os.listdir(figures))
    labels = {"bytes-vs-gpus": ("Ranks", "(KiB)"), "error-per-step": ("Denoising step", "relative L2"),
              "error-vs-staleness": ("(steps)", "relative L2"), "latency-vs-gpus": ("Ranks", "(ms)"),
              "scaling-efficiency": ("Ranks", "(%)"), "bytes-by-kind": ("tp-stale peers", "(KiB)"),
              "memory-by-purpose": ("weights", "(MiB)"), "pareto": ("(ms)", "relative L2")}
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


def rows_of(folder, figure):
    """{(panel, series): rows of numbers, the tag last} of a figure's data."""
    with open(os.path.join(folder, figure + ".dat"), encoding="utf-8") as file:
        blocks = [block.strip().splitlines() for block in file.read().split("\n\n\n")]
    return {(b[0][2:], b[1].strip('"')): [[*map(float, line.split()[:6]), line.split('"')[1]]
                                          for line in b[2:]] for b in blocks}


def stacks_add_up(folder):
    """The tops of stacked bars are the records' totals, whatever the parts are called."""
    out, figures = results(folder), os.path.join(folder, "figures")
    done = bench("plot", out, "-o", figures, "--where", "resolution=12,gpus=3")
    assert done.returncode == 0, done.stderr
    records = {(r["config"]["strategy"], r["config"].get("staleness"), r["config"].get("stale_mode")): r
               for r in harness.read(out) if r["config"]["resolution"] == "12" and r["config"]["gpus"] == 3
               and r["status"] == "ok"}
    for figure, total in (("bytes-by-kind", lambda r: r["comm"]["max_sent_bytes"] / 4 / 1024),
                          ("memory-by-purpose", lambda r: max(m["peak"] for m in r["memory_bytes"]["per_rank"])
                           / 2 ** 20)):
        tops = {}
        for rows in rows_of(figures, figure).values():
            for _, y, low, high, left, right, tag in rows:
                assert abs(high - low - y) < 1e-6 and right - left > 0.5
                tops[tag] = max(tops.get(tag, 0), high)
        for key, tag in ((("tp", None, None), "tp"), (("tp-stale", 2, "peers"), "tp-stale peers s=2")):
            expected = total(records[key])
            assert expected * 0.999 <= tops[tag] <= expected * 1.2, (figure, tag, tops[tag], expected)


def nothing_beats_the_front(folder):
    out, figures = results(folder), os.path.join(folder, "figures")
    assert bench("plot", out, "-o", figures, "--figure", "pareto", "--format", "svg").returncode == 0
    blocks = rows_of(figures, "pareto")
    for panel in {key[0] for key in blocks}:
        points = [row[:2] for (where, name), rows in blocks.items() for row in rows
                  if where == panel and name != "not beaten in both"]
        front = [row[:2] for row in blocks[panel, "not beaten in both"]]
        best = [p for p in points if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in points)]
        assert sorted(front) == sorted(best) and front == sorted(front)


def nothing_is_left_out_silently(folder):
    """What is no value is a labelled mark where it would stand, or counted with its reason."""
    out, figures = os.path.join(folder, "r.jsonl"), os.path.join(folder, "figures")
    done = bench("sweep", "--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref",
                 "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,tp-stale", "--gpus", "1,2,5",
                 "--seed", "0,1", "-o", out)
    assert done.returncode == 0, done.stderr
    records = harness.read(out)
    for r in records:
        key = r["config"]["strategy"], r["config"]["gpus"], r["seed"]
        if r["status"] == "ok":
            r["latency_us"]["oversubscribed"] = key == ("tp", 2, 0)
        if key == ("tp", 2, 1):
            r.update(status="timeout", reason="rank 1 did not come")
        if key == ("tp-stale", 2, 1):  # its output is not finite
            r["error"]["rel_l2"] = None
    with open(out, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(r) + "\n" for r in records)
    done = bench("plot", out, "-o", figures, "--format", "svg", "--size", "single")
    assert done.returncode == 0, done.stderr
    panel = ("8 pixels", "refused or failed")
    marks = {f: [(row[0], row[6]) for row in rows_of(figures, f)[panel]]
             for f in ("latency-vs-gpus", "scaling-efficiency", "bytes-vs-gpus")}
    assert marks["bytes-vs-gpus"] == [(2, "tp timeout"), (5, "4 refused")], marks
    assert marks["scaling-efficiency"] == marks["bytes-vs-gpus"]
    # Bars: in the slots of tp (the middle of three) and tp-stale.
    width = 0.8 / 3
    expected = [(1, "tp timeout"), (2, "2 refused"), (2 + width, "2 refused")]
    assert all(abs(x - y) < 1e-6 and a == b for (x, a), (y, b) in zip(marks["latency-vs-gpus"], expected)), marks
    crowded, unknown = "1 left out: more ranks than cores", "1 left out: not measured, or not finite"
    failed, exact = "5 left out: refused or failed", "1 left out: exact"
    for figure, notes in (("latency-vs-gpus", [crowded]), ("scaling-efficiency", [crowded]),
                          ("bytes-vs-gpus", []), ("error-vs-staleness", [unknown, failed]),
                          ("error-per-step", [exact, unknown, failed]), ("pareto", [crowded, unknown, failed]),
                          ("memory-by-purpose", [failed]), ("bytes-by-kind", [failed])):
        with open(os.path.join(figures, figure + ".svg"), encoding="utf-8") as file:
            svg = file.read()
        assert all(note in svg for note in notes), (figure, notes)
        assert svg.count("left out: ") == len(notes), figure
        assert "refused or failed" in svg and (figure not in marks or "tp timeout" in svg), figure
    errors = [row[1] for (_, name), rows in rows_of(figures, "pareto").items() for row in rows
              if name.startswith("tp-stale")]
    assert errors and min(errors) > 1e-3, "an unknown error is drawn as an exact one"


def simulated_points_take_real_errors(folder):
    """A simulated point has the error of the real run that went the same way; one without such a run is counted
    beneath the figure."""
    real, out, figures = results(folder), os.path.join(folder, "s.jsonl"), os.path.join(folder, "figures")
    done = bench("sweep", "--model", "dit-s-2", "--device", "sim", "--platform", "h100-nvlink", "--dtype",
                 "bf16", "--resolution", "256", "--steps", "4", "--strategy", "tp,tp-stale", "--gpus", "2,4",
                 "--warmup-steps", "2", "-o", out)
    assert done.returncode == 0, done.stderr
    done = bench("plot", out, "-o", figures, "--figure", "pareto")
    assert done.returncode == 2 and "no points" in done.stderr, done.stderr
    done = bench("plot", out, "--errors", real, "-o", figures, "--figure", "pareto", "--format", "svg")
    assert done.returncode == 0, done.stderr
    stale = sorted(r["error"]["rel_l2"] for r in harness.read(real) if r["config"]["strategy"] == "tp-stale" and
                   (r["config"]["gpus"], r["config"]["staleness"], r["config"]["stale_mode"]) == (2, 1, "all"))
    median = (stale[(len(stale) - 1) // 2] + stale[len(stale) // 2]) / 2
    rows = rows_of(figures, "pareto")
    panel = "256 pixels, h100-nvlink"
    assert [row[6] for row in rows[panel, "tp-stale all s=1 bf16, simulated"]] == ["2"]
    assert abs(rows[panel, "tp-stale all s=1 bf16, simulated"][0][1] / median - 1) < 1e-6
    assert abs(rows[panel, "tp bf16, simulated"][0][1] / (median / 10) - 1) < 1e-6, "exact is not below"
    with open(os.path.join(figures, "pareto.svg"), encoding="utf-8") as file:
        svg = file.read()
    for part in ("exact", "Latency: predicted. Error: of real runs of", "2 left out: no real run"):
        assert part in svg, part


def video_figures(folder):
    """Bytes a pair of blocks: DSP's table, 2(A/N)(N-1)/N, at any number of frames."""
    out, figures = os.path.join(folder, "v.jsonl"), os.path.join(folder, "figures")
    done = bench("sweep", "--model", "bench-video", "--device", "sim", "--platform", "h100-nvlink", "--dtype",
                 "bf16", "--resolution", "16", "--frames", "8,16", "--steps", "2", "--strategy", "tp,dsp",
                 "--gpus", "2,4", "-o", out)
    assert done.returncode == 0, done.stderr
    done = bench("plot", out, "-o", figures, "--format", "svg")
    assert done.returncode == 0, done.stderr
    hidden = 2 * 64 * 128 / 2**20 # MiB a frame
    for frames in (8, 16):
        for ranks, mib, *_ in rows_of(figures, "pair-bytes-vs-gpus")[
                f"16 pixels, {frames} frames, h100-nvlink", "dsp bf16, simulated"]:
            assert abs(mib - 2 * frames * hidden / ranks * (ranks - 1) / ranks) < 1e-9
    rows = rows_of(figures, "pair-bytes-vs-frames")["16 pixels, h100-nvlink", "tp bf16, 4 ranks, simulated"]
    assert [(row[0], round(row[1], 9)) for row in rows] == [(f, 8 * f * hidden * 3 / 4) for f in (8, 16)], rows
    records = {r["config"]["frames"]: r["latency_us"]["median"] / 1e3 for r in harness.read(out)
               if (r["config"]["strategy"], r["config"]["gpus"]) == ("dsp", 4)}
    rows = rows_of(figures, "latency-vs-frames")["16 pixels, h100-nvlink", "dsp bf16, 4 ranks, simulated"]
    assert {row[0]: round(row[1], 6) for row in rows} == {f: round(ms, 6) for f, ms in records.items()}


def simulated_points_say_so(folder):
    out, figures = os.path.join(folder, "s.jsonl"), os.path.join(folder, "figures")
    done = bench("sweep", "--model", "dit-s-2", "--device", "sim", "--platform", "h100-nvlink", "--dtype",
                 "bf16", "--resolution", "256", "--repeat", "1", "--strategy", "serial,tp", "--gpus", "1,2",
                 "-o", out)
    assert done.returncode == 0, done.stderr
    done = bench("plot", out, "-o", figures, "--format", "svg", "--size", "double")
    assert done.returncode == 0, done.stderr
    for figure in ("latency-vs-gpus", "scaling-efficiency", "bytes-vs-gpus"):
        assert all(name.endswith(", simulated") for _, name in rows_of(figures, figure)), figure
        with open(os.path.join(figures, figure + ".svg"), encoding="utf-8") as file:
            assert "simulated" in file.read()
    with open(os.path.join(figures, "latency-vs-gpus.svg"), encoding="utf-8") as file:
        assert "<pattern" in file.read(), "bars are not hatched"
    records = {r["config"]["gpus"]: r["latency_us"]["median"] for r in harness.read(out)
               if r["config"]["strategy"] == "tp" or r["config"]["gpus"] == 1}
    rows = rows_of(figures, "scaling-efficiency")["256 pixels, h100-nvlink", "tp bf16, simulated"]
    assert abs(rows[1][1] - 100 * records[1] / (2 * records[2])) < 1e-6


def timeline_of_a_trace(folder):
    trace, figures = os.path.join(folder, "t.json"), os.path.join(folder, "figures")
    harness.run_small("--strategy", "pipefusion", "--gpus", "2", "--patches", "2", "--trace", trace)
    done = bench("plot", "--figure", "timeline", trace, "-o", figures, "--format", "svg")
    assert done.returncode == 0, done.stderr
    with open(os.path.join(figures, "timeline.svg"), encoding="utf-8") as file:
        svg = file.read()
    for text in ("rank 0 compute", "rank 1 compute", "Time (ms)", "send"):
        assert text in svg, text
    done = bench("plot", "--figure", "timeline", harness.TINY, "-o", figures)
    assert done.returncode == 1 and "tiny" in done.stderr


def widths_for_papers(folder):
    out = results(folder)
    for size, most in (("single", 8.6), ("double", 17.8)):
        figures = os.path.join(folder, size)
        done = bench("plot", out, "-o", figures, "--figure", "bytes-vs-gpus", "--format", "pdf", "--size", size)
        assert done.returncode == 0, done.stderr
        with open(os.path.join(figures, "bytes-vs-gpus.pdf"), "rb") as file:
            box = re.search(rb"MediaBox \[ *0 0 ([\d.]+)", file.read())
        assert box and abs(float(box[1]) / 72 * 2.54 - most) < 0.2, (size, box)


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
    for script, part in (("exit 3", "exit code 3"), ("exit 0", "empty or cut off"),
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
              filters_and_notes, stacks_add_up, nothing_beats_the_front, nothing_is_left_out_silently,
              simulated_points_say_so, simulated_points_take_real_errors, video_figures, timeline_of_a_trace,
              widths_for_papers, gnuplot_missing_or_failing, bad_requests])
