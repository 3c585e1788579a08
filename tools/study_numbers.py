"""What the records of the study say: the one place where its numbers are computed.

`Study(folder)` reads the committed records; `numbers()` gives every number that docs/stale-tp.md prints, by
name; `series()` gives the data of its figures.
"""
import os
import statistics

import records

STEPS, HALVES = 20, 24  # of an image of the study; half blocks of dit-fashion
FRESH = dict(warmup_steps=1, staleness=1, refresh=0, stale_mode="all", stale_transport="allreduce",
             stale_halves="both", stale_blocks="all", extrapolate=0, extrapolate_in="steps", repair=0,
             own_change=1)

# Name of a way of running, how figures call it, and its options; what is not said is at its default, and
# code_bits and gpus count only where they are said.
METHODS = {
    "pipefusion": ("PipeFusion, M = 8", dict(strategy="pipefusion")),
    "distrifusion2": ("DistriFusion, N = 2", dict(strategy="distrifusion", gpus=2)),
    "distrifusion4": ("DistriFusion, N = 4", dict(strategy="distrifusion", gpus=4)),
    "distrifusion8": ("DistriFusion, N = 8", dict(strategy="distrifusion", gpus=8)),
    "all": ("all stale", {}),
    "peers2": ("peers stale, N = 2", dict(stale_mode="peers", gpus=2)),
    "peers4": ("peers stale, N = 4", dict(stale_mode="peers", gpus=4)),
    "peers8": ("peers stale, N = 8", dict(stale_mode="peers", gpus=8)),
    "attn": ("attention stale", dict(stale_halves="attn")),
    "mlp": ("MLP stale", dict(stale_halves="mlp")),
    **{f"blocks{a}to{b}": (f"blocks {a}-{b} stale", dict(stale_blocks=f"{a}-{b}"))
       for a, b in ((0, 2), (3, 5), (6, 8), (9, 11), (0, 5), (6, 11))},
    **{f"warmup{w}": (f"warm-up of {w}", dict(warmup_steps=w)) for w in (2, 4, 8)},
    **{f"{mode}stale{s}": (f"{mode}, s = {s}, warm-up of 4",
                           dict(stale_mode=mode, staleness=s, warmup_steps=4, gpus=2))
       for mode in ("all", "peers") for s in (1, 2, 4)},
    **{f"refresh{r}": (f"refresh {r}", dict(refresh=r)) for r in (2, 3, 4, 8)},
    **{f"refresh{r}{time}": (f"refresh {r}, c = 0.7 in {time}",
                             dict(refresh=r, extrapolate=0.7, extrapolate_in=time))
       for r in (0, 2, 4) for time in ("steps", "logsnr", "angle")},
    **{f"own{n}x{str(g).replace('.', '')}": (f"own change x {g}, refresh 2, N = {n}",
                                             dict(stale_mode="peers", refresh=2, gpus=n, own_change=g))
       for n in (2, 4) for g in (0, 1, 1.5, 2)},
    **{f"repair{d}": (f"repair {d}", dict(repair=d)) for d in (1, 2, 4, 8, 24)},
    **{f"repair{d}c{str(c).replace('.', '')}": (f"repair {d}, c = {c}", dict(repair=d, extrapolate=c))
       for d in (1, 2, 4, 8, 24) for c in (0.5, 1)},
    **{f"repairpeers{n}": (f"repair 1, c = 1, peers, N = {n}",
                           dict(repair=1, extrapolate=1, stale_mode="peers", gpus=n)) for n in (2, 4, 8)},
    **{f"repairrefresh{r}": (f"repair 1, c = 1, refresh {r}", dict(repair=1, extrapolate=1, refresh=r))
       for r in (2, 4)},
    **{f"coded{b}n{n}": (f"codes of {b} bits, N = {n}", dict(stale_mode="coded", code_bits=b, gpus=n))
       for b in (2, 3, 4, 8) for n in (2, 8)},
    "late": ("blocks 6-11, refresh 2", dict(stale_blocks="6-11", refresh=2)),
    "latec": ("blocks 6-11, refresh 2, c = 0.7", dict(stale_blocks="6-11", refresh=2, extrapolate=0.7)),
}
# The same ways at other sizes: name of the method, options in the records of the scale sweeps.
SCALES = [(10, 16), (20, 16), (50, 16), (20, 24), (20, 32)]
SCALED = {"all": dict(gpus=1), "repair1c1": dict(gpus=1), "coded4n2": dict(gpus=2),
          "pipefusion": dict(gpus=2), "distrifusion8": dict(gpus=8)}
PLATFORMS = {"h100-nvlink": "nvlink", "l40-pcie": "pcie"}
# Ways in the Pareto figure: name, label, options of the simulated record, name of the measured error (None:
# exact).
PARETO = [
    ("tp", "tp", dict(strategy="tp"), None),
    ("ulysses", "ulysses", dict(strategy="ulysses"), None),
    ("ring", "ring", dict(strategy="ring"), None),
    ("pipefusion", "pipefusion", dict(strategy="pipefusion"), "pipefusion"),
    ("distrifusion", "distrifusion", dict(strategy="distrifusion"), "distrifusion8"),
    ("all", "tp-stale all", dict(stale_mode="all", repair=0, refresh=0), "all"),
    ("peers", "tp-stale peers", dict(stale_mode="peers", stale_transport="allreduce"), "peers8"),
    ("refresh2", "refresh 2, c 0.7", dict(refresh=2, extrapolate=0.7), "refresh2steps"),
    ("repair", "repair 1", dict(repair=1, extrapolate=0), "repair1"),
    ("repairc", "repair 1, c 1", dict(repair=1, extrapolate=1), "repair1c1"),
    ("coded", "4-bit codes", dict(stale_mode="coded", code_bits=4), "coded4n8"),
]


def median(values):
    return statistics.median(values)


def interval(values):
    """95% interval of the median by order statistics; of 20 values the 6th and the 15th."""
    ordered = sorted(values)
    assert len(ordered) == 20, f"{len(ordered)} images where 20 were expected"
    return ordered[5], ordered[14]


def has(config, wanted):
    return all(config.get(key) == value for key, value in wanted.items())


def options(method):
    """All that a record of the method must say."""
    wanted = METHODS[method][1]
    return wanted if "strategy" in wanted else {"strategy": "tp-stale", **FRESH, **wanted}


def shares(method, element_bytes=4):
    """Of tp's all-reduce bytes: what a rank waits for at once, what it starts early, what is not sent."""
    o = options(method)
    total = STEPS * HALVES
    halves = [(block, half) for block in range(HALVES // 2) for half in ("attn", "mlp")]
    first, last = (0, 99) if o["stale_blocks"] == "all" else map(int, o["stale_blocks"].split("-"))
    may = sum(o["stale_halves"] in ("both", half) and first <= block <= last and
              not (o["repair"] and (block, half) == halves[-1]) for block, half in halves)
    stale = [i >= o["warmup_steps"] and not (o["refresh"] and (i - o["warmup_steps"]) % o["refresh"] ==
                                             o["refresh"] - 1) for i in range(STEPS)]
    read_later = [i + o["staleness"] < STEPS and stale[i + o["staleness"]] or
                  bool(o["extrapolate"]) and i + o["staleness"] + 1 < STEPS and
                  stale[i + o["staleness"] + 1] or o["repair"] > 0 for i in range(STEPS)]
    waited = HALVES * (STEPS - sum(stale)) + (HALVES - may) * sum(stale)
    early = may * sum(a and b for a, b in zip(stale, read_later))
    if o["stale_mode"] == "coded":  # a row of 128 values is a step and its codes
        words = 1 + -(-128 // (32 // o["code_bits"]))
        waited, early = waited + may * sum(stale) * 4 * words / (128 * element_bytes), 0
    return waited / total, early / total, 1 - (waited + early) / total


class Study:
    def __init__(self, folder):
        self.points = records.read(os.path.join(folder, "points.jsonl"))
        self.scale = records.read(os.path.join(folder, "scale.jsonl"))
        self.sim = records.read(os.path.join(folder, "sim.jsonl"))
        self.delay = records.read(os.path.join(folder, "delay.jsonl"))
        bad = [r for r in self.points + self.scale + self.sim + self.delay if r["status"] != "ok"]
        assert not bad, bad[0]["reason"]

    def errors(self, method):
        """Of the 20 images, in the order of the records."""
        wanted = options(method)
        found = [r["error"]["rel_l2"] for r in self.points if has(r["config"], wanted)]
        if len(found) > 20 and "gpus" not in wanted:  # the same images on other numbers of ranks
            found = [r["error"]["rel_l2"] for r in self.points if has(r["config"], {**wanted, "gpus": 1})]
        assert len(found) == 20, f"{method}: {len(found)} images"
        return found

    def per_step(self, method):
        wanted = options(method)
        rows = [r["error"]["per_step_rel_l2"] for r in self.points if has(r["config"], wanted)][:20]
        return [median(step) for step in zip(*rows)]

    def scaled(self, method, steps, pixels):
        wanted = {**options(method), **SCALED[method], "steps": steps, "resolution": str(pixels)}
        found = [r["error"]["rel_l2"] for r in self.scale if has(r["config"], wanted)]
        assert len(found) == 20, f"{method} {steps} {pixels}: {len(found)} images"
        return median(found)

    def simulated(self, platform, pixels, wanted):
        wanted = {"strategy": "tp-stale", "platform": platform, "resolution": str(pixels), **wanted}
        if wanted["strategy"] == "tp-stale":
            wanted = {"stale_mode": "all", "stale_transport": "allreduce", "refresh": 0, "repair": 0,
                      "extrapolate": 0, **wanted}
        found = [r for r in self.sim if has(r["config"], wanted)]
        assert len(found) == 1, f"{wanted}: {len(found)} records"
        return found[0]

    def delayed(self, ms, repair, staleness):
        found = [r for r in self.delay if has(r["config"], dict(repair=repair, staleness=staleness)) and
                 r["provenance"]["environment"].get("DITTO_TEST_DELAY_MS", "0") == str(ms)]
        assert len(found) == 1, f"delay {ms}: {len(found)} records"
        return found[0]["latency_us"]["median"] / 1000

    # ---- what the document prints ----

    def error_numbers(self):
        out, base = {}, median(self.errors("pipefusion"))
        for method in METHODS:
            errors = self.errors(method)
            out[f"{method}.error"] = median(errors)
            out[f"{method}.low"], out[f"{method}.high"] = interval(errors)
            out[f"{method}.ratio"] = median(errors) / base
            if options(method)["strategy"] == "tp-stale":
                waited, early, unsent = shares(method)
                out |= {f"{method}.waited": waited, f"{method}.early": early, f"{method}.unsent": unsent,
                        f"{method}.off": 1 - waited, f"{method}.off_bf16": 1 - shares(method, 2)[0]}
        for steps, pixels in SCALES:
            base = self.scaled("pipefusion", steps, pixels)
            for method in SCALED:
                error = self.scaled(method, steps, pixels)
                out[f"{method}.k{steps}.px{pixels}.error"] = error
                out[f"{method}.k{steps}.px{pixels}.ratio"] = error / base
        out["images"] = 20
        return out

    def simulated_numbers(self):
        out = {}
        for platform, short in PLATFORMS.items():
            for pixels in (1024, 2048):
                where = f"{short}.{pixels}"
                ways = PARETO + [("allgather", "", dict(stale_mode="peers", stale_transport="allgather"), None)]
                for name, _, wanted, _ in ways:
                    r = self.simulated(platform, pixels, wanted)
                    out[f"{name}.{where}.ms"] = r["latency_us"]["median"] / 1000
                    out[f"{name}.{where}.exposed_ms"] = r["comm_exposed_us"]["max"] / 1000
                    out[f"{name}.{where}.sent_mib"] = r["comm"]["max_sent_bytes"] / 2**20
                    out[f"{name}.{where}.stale_mib"] = r["memory_bytes"]["stale"] / 2**20
                    out[f"{name}.{where}.peak_mib"] = r["memory_bytes"]["peak"] / 2**20
                for name in ("all", "repair", "coded", "repairc"):
                    out[f"{name}.{where}.gain"] = 1 - out[f"{name}.{where}.ms"] / out[f"tp.{where}.ms"]
        return out

    def delay_numbers(self):
        out = {}
        for name, repair, staleness in (("tp", 0, 0), ("all", 0, 1), ("repair", 4, 1)):
            out[f"{name}.delay.loss_ms"] = (self.delayed(10, repair, staleness) -
                                            self.delayed(0, repair, staleness))
        return out

    def numbers(self):
        return {**self.error_numbers(), **self.simulated_numbers(), **self.delay_numbers()}
