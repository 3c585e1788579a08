"""bench report in a real browser: it renders, sorts, holds everything inside; and bench export."""
import csv
import html
import io
import json
import os
import re
import shutil
import subprocess

import harness
from harness import bench


def chromium(folder, *words):
    """Output of a headless browser with a profile of its own."""
    program = shutil.which("chromium")
    assert program, "chromium is not installed; on Debian: apt-get install chromium"
    profile = os.path.join(folder, "profile")
    done = subprocess.run([program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--user-data-dir=" + profile, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def page_of(folder):
    """A small sweep with two seeds, one refused point, and one run with an image."""
    out, page = os.path.join(folder, "r.jsonl"), os.path.join(folder, "report.html")
    image = os.path.join(folder, "stale <1>.png")
    done = bench("sweep", "--model", harness.TINY, "--resolution", "8", "--steps", "3", "--device", "ref",
                 "--repeat", "1", "--warmup-runs", "0", "--strategy", "serial,tp,tp-stale", "--gpus", "1,2,5",
                 "--seed", "0,1", "-o", out)
    assert done.returncode == 0, done.stderr
    done = bench("run", *harness.SMALL, "--strategy", "tp-stale", "--gpus", "2", "--seed", "2", "--image",
                 image, "-o", out)
    assert done.returncode == 0, done.stderr
    done = bench("report", out, "-o", page, "--title", "A <b>bold</b> & \"quoted\" title")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == page and not [n for n in os.listdir(folder) if "partial" in n]
    return out, page


def rows_of(dom):
    """Texts of the table's cells, tags removed."""
    body = re.search(r"<tbody>(.*?)</tbody>", dom, re.S)[1]
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]
            for row in re.findall(r"<tr>(.*?)</tr>", body, re.S)]


def a_browser_renders_and_sorts(folder):
    out, page = page_of(folder)
    assert len(harness.read(out)) == 15
    plain = chromium(folder, "--dump-dom", "file://" + page)
    assert "A &lt;b&gt;bold&lt;/b&gt; &amp;" in plain and "<b>bold" not in plain
    rows = rows_of(plain)
    assert len(rows) == 1 + 3 + 3 and all(len(row) == 10 for row in rows), rows
    assert sum("unsupported" in row[9] for row in rows) == 2
    stale = [row for row in rows if row[1].startswith("tp-stale") and row[2] == "2"][0]
    assert re.fullmatch(r"\d\.\d\de-\d\d \(.* to .*\)", stale[8]), stale  # median and range over seeds
    assert re.search(r"over 3$", stale[4]), stale
    for sign, reverse in (("", False), ("-", True)):
        dom = chromium(folder, "--dump-dom", f"file://{page}#sort={sign}6")
        shown = [float(row[6]) for row in rows_of(dom) if row[6] != "-"]
        assert shown == sorted(shown, reverse=reverse) and len(set(shown)) > 1, shown
        assert f'aria-sort="{"descending" if reverse else "ascending"}"' in dom
        assert [row[6] for row in rows_of(dom)][-2:] == ["-", "-"]  # what is not known comes last


def everything_is_inside(folder):
    out, page = page_of(folder)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text), "the page needs other files"
    assert "@import" not in text and "<link" not in text
    assert text.count("<svg") == text.count("</svg>") >= 5
    ids = re.findall(r"""\bid=["']([^"']+)""", text)
    assert len(ids) == len(set(ids)), "an id stands twice"
    for used in re.findall(r"""(?:href=['"]#|url\(#)([^'")]+)""", text):
        assert used in ids, used
    assert text.count("data:image/png;base64,") == 1
    os.unlink(os.path.join(folder, "stale <1>.png"))
    assert bench("report", out, "-o", page).returncode == 0
    with open(page, encoding="utf-8") as file:
        text = file.read()
    assert "not there any more" in text and "stale &lt;1&gt;.png" in text and "image/png" not in text


def an_image_is_drawn(folder):
    """The embedded image decodes to its size: a broken one would have none."""
    _, page = page_of(folder)
    probe = os.path.join(folder, "probe.html")
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with open(probe, "w", encoding="utf-8") as file:
        file.write(text.replace("</body>", "<script>onload=()=>{const i=document.images[0];"
                                           "document.title=i.naturalWidth+'x'+i.naturalHeight}</script></body>"))
    dom = chromium(folder, "--dump-dom", "file://" + probe)
    assert "<title>584x192</title>" in dom, re.search("<title>.*?</title>", dom)[0]


def failures_leave_no_page(folder):
    out, page = page_of(folder)
    os.unlink(page)
    tools = os.path.join(folder, "bin")
    os.mkdir(tools)
    done = bench("report", out, "-o", page, env={"PATH": tools})
    assert done.returncode == 1 and "gnuplot" in done.stderr
    done = bench("report", out, "-o", "/proc/nowhere/x.html")
    assert done.returncode == 1 and "/proc" in done.stderr
    assert sorted(os.listdir(folder)) == ["bin", "r.jsonl", "r.jsonl.refs", "stale <1>.png"]


def csv_json_latex(folder):
    out, _ = page_of(folder)
    records = harness.read(out)
    rows = list(csv.DictReader(io.StringIO(bench("export", out, "--csv").stdout, newline="")))
    assert len(rows) == len(records)
    for row, record in zip(rows, records):
        assert row["case_id"] == record["case_id"] and row["status"] == record["status"]
        assert row["reason"] == (record["reason"] or "")
        if record["status"] == "ok":
            assert float(row["latency_us.median"]) == record["latency_us"]["median"]
            assert int(row["comm.max_sent_bytes"]) == record["comm"]["max_sent_bytes"]
            assert row["latency_us.ci95.0"] == "" and row["latency_us.oversubscribed"] in ("true", "false")
    assert json.loads(bench("export", out, "--json").stdout) == records
    path = os.path.join(folder, "t.tex")
    assert bench("export", out, "--latex", "-o", path).returncode == 0
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.count("\\toprule") == text.count("\\bottomrule") == 1 and "\\end{tabular}" in text
    lines = [line for line in text.splitlines() if line.endswith("\\\\") and "multicolumn" not in line]
    assert all(line.count(" & ") == 5 for line in lines) and len(lines) == 1 + 1 + 2 + 2, text
    assert "\\cdot10^{-" in text and "exact" in text
    for words, part in (([], "--csv"), (["--csv", "--json"], "one of")):
        done = bench("export", out, *words)
        assert done.returncode == 2 and part in done.stderr


harness.main([a_browser_renders_and_sorts, everything_is_inside, an_image_is_drawn, failures_leave_no_page,
              csv_json_latex])
