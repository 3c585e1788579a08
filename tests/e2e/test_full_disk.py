"""A disk that is really full (a small tmpfs): clear errors, nothing half written, nothing finished lost."""
import os
import subprocess
import sys

import harness
from harness import bench

POINT = ["--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref", "--repeat", "1",
         "--warmup-runs", "0"]
PAGE = 4096


def in_namespace():
    """Starts over in a mount namespace of its own, where this is allowed: mounts end with the script."""
    if os.environ.get("DITTO_TEST_MOUNTS"):
        return
    words = ["unshare", "--map-root-user", "--mount"]
    probe = subprocess.run([*words, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    os.environ["DITTO_TEST_MOUNTS"] = "yes" if probe.returncode == 0 else "no: " + probe.stderr.strip()
    if probe.returncode == 0:
        os.execvp(words[0], [*words, sys.executable, *sys.argv])


def disk(folder, pages=64):
    """A file system of so many pages at folder/disk."""
    if os.environ["DITTO_TEST_MOUNTS"] != "yes":
        raise harness.Skipped("no mounts here: " + os.environ["DITTO_TEST_MOUNTS"])
    path = os.path.join(folder, "disk")
    os.mkdir(path)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={pages * PAGE}", "tmpfs", path], check=True)
    return path


def leave(path, pages):
    """Fills the disk but for so many pages."""
    filler = os.path.join(path, "filler")
    if os.path.exists(filler):
        os.unlink(filler)
    with open(filler, "wb") as file:
        file.write(bytes(PAGE * (os.statvfs(path).f_bfree - pages)))
    assert os.statvfs(path).f_bfree == pages


def files_of(path):
    return sorted(os.path.relpath(os.path.join(where, name), path)
                  for where, _, names in os.walk(path) for name in names if name != "filler")


def run_keeps_what_was_there(folder):
    path = disk(folder)
    out = os.path.join(path, "r.jsonl")
    assert bench("run", *POINT, "-o", out).returncode == 0
    with open(out, "rb") as file:
        before = file.read()
    leave(path, 0)
    for _ in range(2):  # the first may still fit into the page
        done = bench("run", *POINT, "-o", out)
    assert done.returncode == 1 and "r.jsonl: cannot write: No space left" in done.stderr, done.stderr
    with open(out, "rb") as file:
        after = file.read()
    assert after.startswith(before) and after.endswith(b"\n")
    harness.read(out)


def a_sweep_keeps_its_points_and_resumes(folder):
    path = disk(folder)
    out = os.path.join(path, "r.jsonl")
    words = [*POINT, "--strategy", "serial,tp,tp-stale", "--gpus", "1,2", "-o", out]
    leave(path, 3)  # the reference and some records
    done = bench("sweep", *words)
    assert done.returncode == 1 and "No space left" in done.stderr, done.stderr
    assert "lost" in done.stderr and "--resume" in done.stderr and done.stdout == ""
    kept = harness.read(out)
    assert done.stderr.count("] ok ") == len(kept) and 0 < len(kept) < 5
    leave(path, 8)
    done = bench("sweep", *words, "--resume")
    assert done.returncode == 0 and f"{len(kept)} of 5 points" in done.stderr, done.stderr
    records = harness.read(out)
    assert records[:len(kept)] == kept and len({r["case_id"] for r in records}) == len(records) == 5
    assert all(r["status"] == "ok" and r["error"]["rel_l2"] is not None for r in records)


def a_reference_without_room_is_computed_again(folder):
    """Whatever keeps it from being written; the errors are there all the same."""
    out = os.path.join(folder, "r.jsonl")
    with open(out + ".refs", "w") as file:
        file.write("no folder")
    done = bench("sweep", *POINT, "--strategy", "serial,tp,tp-stale", "--gpus", "2", "-o", out)
    assert done.returncode == 0 and done.stderr.count("could not be kept") == 1, done.stderr
    errors = [r["error"]["rel_l2"] for r in harness.read(out)]
    assert errors[0] == 0 and 0 < errors[1] < 5e-6 and errors[2] > 1e-3, errors


def pages_of(words, name, folder):
    """Pages of the file that a command writes where there is room."""
    done = bench(*[w.replace("DISK", folder) for w in words])
    assert done.returncode == 0, done.stderr
    return -(-os.path.getsize(os.path.join(folder, name)) // PAGE)


def nothing_is_half_written(folder):
    path, room, out = disk(folder, 256), os.path.join(folder, "room"), os.path.join(folder, "r.jsonl")
    os.mkdir(room)
    assert bench("sweep", *POINT, "--strategy", "serial,tp,tp-stale", "--gpus", "1,2", "-o", out).returncode == 0
    cases = [(["report", out, "-o", "DISK/x.html"], "x.html"),
             (["export", out, "--csv", "-o", "DISK/x.csv"], "x.csv"),
             (["export", out, "--json", "-o", "DISK/x.json"], "x.json"),
             (["export", out, "--latex", "-o", "DISK/x.tex"], "x.tex"),
             (["run", *POINT, "--dump", "DISK/x.safetensors"], "x.safetensors"),
             (["run", *POINT, "--trace", "DISK/x.trace"], "x.trace"),
             (["run", *POINT, "--image", "DISK/x.png"], "x.png")]
    for words, name in cases:
        # Nothing fits, or all but the end.
        for pages in {0, pages_of(words, name, room) - 1}:
            leave(path, pages)
            done = bench(*[w.replace("DISK", path) for w in words])
            assert done.returncode == 1 and name in done.stderr and "No space left" in done.stderr, (words, done)
            assert files_of(path) == [], (words, pages)
            if words[0] == "run":
                record = harness.parse(done.stdout)[0]
                assert record["status"] == "error" and "No space left" in record["reason"]
                assert record["latency_us"]["median"] > 0  # what was measured is not lost


def a_figure_is_whole_or_not_there(folder):
    """gnuplot itself does not notice."""
    path, room, out = disk(folder, 256), os.path.join(folder, "room"), os.path.join(folder, "r.jsonl")
    os.mkdir(room)
    assert bench("sweep", *POINT, "--strategy", "serial,tp,tp-stale", "--gpus", "1,2", "-o", out).returncode == 0
    for ending in ("svg", "pdf", "png"):
        words = ["plot", out, "-o", "DISK", "--figure", "bytes-vs-gpus", "--format", ending]
        figure = pages_of(words, "bytes-vs-gpus." + ending, room)
        beside = sum(pages_of(words, "bytes-vs-gpus." + e, room) for e in ("dat", "gp"))
        for pages in {0, beside, beside + figure - 1}:
            leave(path, pages)
            done = bench(*[w.replace("DISK", path) for w in words])
            assert done.returncode == 1 and ("No space" in done.stderr or "disk full" in done.stderr), done.stderr
            left = files_of(path)
            assert set(left) <= {"bytes-vs-gpus.dat", "bytes-vs-gpus.gp"}, (ending, pages, left)
            for name in left:  # what lies beside is whole
                with open(os.path.join(path, name), "rb") as a, open(os.path.join(room, name), "rb") as b:
                    assert a.read() == b.read(), name
                os.unlink(os.path.join(path, name))


in_namespace()
harness.main([run_keeps_what_was_there, a_sweep_keeps_its_points_and_resumes,
              a_reference_without_room_is_computed_again, nothing_is_half_written,
              a_figure_is_whole_or_not_there])
