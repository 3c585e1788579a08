"""Tensor parallelism with stale activations in NumPy float64, from the definitions in docs/strategies.md.

Independent of the C code: no ranks, no messages; what rank r would hold is computed here for every r.
Run with options of `bench run` (names with _), it is what the end-to-end test compares with.
"""
import json
import math
import struct

import numpy as np

DEFAULTS = dict(steps=20, class_=0, cfg_scale=1.0, gpus=1, warmup_steps=1, staleness=1, refresh=0,
                stale_mode="all", stale_halves="both", stale_blocks=None, extrapolate=0.0,
                extrapolate_in="steps", repair=0, own_change=1.0, code_bits=4)
CODE_GROUP = 128
BETA = np.linspace(1e-4, 2e-2, 1000)
ALPHA = np.cumprod(1 - BETA)


def values(data, tensor):
    """A safetensors entry's numbers; a bfloat16 is the upper half of an fp32."""
    kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor["dtype"]]
    flat = np.frombuffer(data, kind, int(np.prod(tensor["shape"])), tensor["data_offsets"][0])
    if tensor["dtype"] == "BF16":
        flat = (flat.astype("<u4") << 16).view("<f4")
    return flat.reshape(tensor["shape"]).astype(np.float64)


def read(path):
    """Tensors of a safetensors file, as float64, and its metadata."""
    with open(path, "rb") as file:
        data = file.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    facts = header.pop("__metadata__", {})
    return {name: values(data[8 + size:], t) for name, t in header.items()}, facts


def spans(n, parts):
    """Contiguous, the first n mod parts one longer."""
    ends = np.cumsum([n // parts + (i < n % parts) for i in range(parts)])
    return [slice(end - n // parts - (i < n % parts), end) for i, end in enumerate(ends)]


def silu(x):
    return x / (1 + np.exp(-x))


def modulate(x, shift, scale):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * (1 + scale) + shift


class Model:
    def __init__(self, path):
        self.w, facts = read(path)
        self.heads, self.patch = int(facts["heads"]), int(facts["patch"])
        self.width, self.channels = self.w["x_embedder.proj.weight"].shape[:2]
        self.blocks = 1 + max(int(name.split(".")[1]) for name in self.w if name.startswith("blocks."))
        self.null_class = len(self.w["y_embedder.embedding_table.weight"]) - 1

    def linear(self, name, x):
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def condition(self, t, class_id):
        angles = t * np.exp(-math.log(10000) * np.arange(128) / 128)
        hidden = silu(self.linear("t_embedder.mlp.0", np.concatenate([np.cos(angles), np.sin(angles)])))
        return silu(self.linear("t_embedder.mlp.2", hidden) +
                    self.w["y_embedder.embedding_table.weight"][class_id])

    def modulation(self, name, condition, count):
        return self.linear(name, condition).reshape(count, self.width)

    def embed(self, x):
        c, h, w = x.shape
        p = self.patch
        tokens = x.reshape(c, h // p, p, w // p, p).transpose(1, 3, 0, 2, 4).reshape(-1, c * p * p)
        waves = 10000.0 ** (-np.arange(self.width // 4) / (self.width // 4))
        rows, columns = np.divmod(np.arange(len(tokens)), w // p)
        position = [f(place[:, None] * waves) for place in (columns, rows) for f in (np.sin, np.cos)]
        return (tokens @ self.w["x_embedder.proj.weight"].reshape(self.width, -1).T +
                self.w["x_embedder.proj.bias"] + np.concatenate(position, 1))

    def attention_partial(self, block, x, span):
        """What the heads of `span` add, before the bias."""
        head_dim = self.width // self.heads
        q, k, v = self.linear(f"blocks.{block}.attn.qkv", x).reshape(
            len(x), 3, self.heads, head_dim).transpose(1, 2, 0, 3)[:, span]
        scores = q @ k.swapaxes(1, 2) / math.sqrt(head_dim)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        o = (weights / weights.sum(-1, keepdims=True)) @ v
        columns = slice(span.start * head_dim, span.stop * head_dim)
        weight = self.w[f"blocks.{block}.attn.proj.weight"][:, columns]
        return o.transpose(1, 0, 2).reshape(len(x), -1) @ weight.T

    def mlp_partial(self, block, x, span):
        name = f"blocks.{block}.mlp."
        y = x @ self.w[name + "fc1.weight"][span].T + self.w[name + "fc1.bias"][span]
        y = 0.5 * y * (1 + np.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y ** 3)))
        return y @ self.w[name + "fc2.weight"][:, span].T

    def finish(self, x, condition, shape):
        c, h, w = shape
        p = self.patch
        y = modulate(x, *self.modulation("final_layer.adaLN_modulation.1", condition, 2))
        y = self.linear("final_layer.linear", y).reshape(h // p, w // p, p, p, -1)
        return y.transpose(4, 0, 2, 1, 3).reshape(-1, h, w)[:c]


def coded(x, base, bits):
    """base moved towards x by whole levels, in groups of a row."""
    out = base.copy()
    for i in range(0, x.shape[1], CODE_GROUP):
        change = x[:, i:i + CODE_GROUP] - base[:, i:i + CODE_GROUP]
        step = abs(change).max(1, keepdims=True) / (2 ** (bits - 1) - 1)
        out[:, i:i + CODE_GROUP] += step * np.rint(change / np.where(step > 0, step, 1))
    return out


class Sampler:
    """One image; both halves of guidance, each as N ranks."""

    def __init__(self, model, **options):
        self.m, self.o = model, {**DEFAULTS, **options}
        self.kept = {}   # (guidance half, half of a block, step): partial sums of all ranks
        self.bases = {}  # (guidance half, half of a block): [bases of all ranks, known sum]

    def timestep(self, i):
        return (self.o["steps"] - 1 - i) * (1000 // self.o["steps"])

    def is_stale(self, i):
        o = self.o
        refreshes = o["refresh"] and (i - o["warmup_steps"]) % o["refresh"] == o["refresh"] - 1
        return o["staleness"] > 0 and i >= o["warmup_steps"] and not refreshes

    def may_be_stale(self, j):
        o, block, half = self.o, j // 2, ("attn", "mlp")[j % 2]
        first, last = o["stale_blocks"] or (0, self.m.blocks - 1)
        is_last = j == 2 * self.m.blocks - 1
        return (o["stale_halves"] in ("both", half) and first <= block <= last and
                not (o["repair"] and is_last))

    def share(self, i):
        s, c = self.o["staleness"], self.o["extrapolate"]
        if c == 0 or i - s - 1 < 0:
            return 0
        time = {"steps": lambda k: k,
                "logsnr": lambda k: math.log(ALPHA[self.timestep(k)] / (1 - ALPHA[self.timestep(k)])) / 2,
                "angle": lambda k: math.acos(math.sqrt(ALPHA[self.timestep(k)]))}[self.o["extrapolate_in"]]
        return c * (time(i) - time(i - s)) / (time(i - s) - time(i - s - 1))

    def old(self, where, i, of):
        """V(i-s) + w (V(i-s) - V(i-s-1)) of what `of` takes from the partial sums."""
        s, w = self.o["staleness"], self.share(i)
        value = of(self.kept[(*where, i - s)])
        return value + w * (value - of(self.kept[(*where, i - s - 1)])) if w else value

    def reduce_coded(self, where, partials, stale):
        bits = self.o["code_bits"]
        if not stale:
            self.bases[where] = [partials, sum(partials)]
            return sum(partials)
        bases, known = self.bases[where]
        bases = [coded(p, b, bits) for p, b in zip(partials, bases)]
        self.bases[where] = [bases, coded(sum(bases), known, bits)]
        return self.bases[where][1]

    def reduce(self, where, i, partials):
        """What every rank's residual adds."""
        o, stale = self.o, self.is_stale(i) and self.may_be_stale(where[1])
        self.kept[(*where, i)] = partials
        if o["stale_mode"] == "coded":
            return [self.reduce_coded(where, partials, stale)] * o["gpus"]
        if not stale:
            return [sum(partials)] * o["gpus"]
        total = self.old(where, i, sum)
        if o["stale_mode"] == "all":
            return [total] * o["gpus"]
        return [total + o["own_change"] * (p - self.old(where, i, lambda parts, r=r: parts[r]))
                for r, p in enumerate(partials)]

    def predict(self, x, i, guidance):
        """Mean over ranks of the predicted noise of one half of guidance."""
        m, o = self.m, self.o
        condition = m.condition(self.timestep(i), m.null_class if guidance else o["class_"])
        hidden = [m.embed(x)] * o["gpus"]
        lacking = []  # (half, what each rank's hidden state still lacks)
        for j in range(2 * m.blocks):
            block, half = divmod(j, 2)
            mods = m.modulation(f"blocks.{block}.adaLN_modulation.1", condition, 6)[3 * half:]
            partial, things = ((m.attention_partial, m.heads),
                               (m.mlp_partial, len(m.w[f"blocks.{block}.mlp.fc1.bias"])))[half]
            partials = [partial(block, modulate(h, mods[0], mods[1]), span)
                        for h, span in zip(hidden, spans(things, o["gpus"]))]
            used = self.reduce((guidance, j), i, partials)
            bias = m.w[f"blocks.{block}.{('attn.proj', 'mlp.fc2')[half]}.bias"]
            hidden = [h + mods[2] * (y + bias) for h, y in zip(hidden, used)]
            if o["repair"]:
                lacking.append((j, [mods[2] * (sum(partials) - y) for y in used]))
            while lacking and (lacking[0][0] + o["repair"] <= j or j == 2 * m.blocks - 1):
                hidden = [h + d for h, d in zip(hidden, lacking.pop(0)[1])]
        return sum(m.finish(h, condition, x.shape) for h in hidden) / o["gpus"]

    def run(self, x):
        """The latent after every step."""
        trajectory = []
        for i in range(self.o["steps"]):
            noise = self.predict(x, i, 0)
            if self.o["cfg_scale"] != 1:
                null = self.predict(x, i, 1)
                noise = null + self.o["cfg_scale"] * (noise - null)
            a = ALPHA[self.timestep(i)]
            after = ALPHA[self.timestep(i + 1)] if i + 1 < self.o["steps"] else 1.0
            x0 = (x - math.sqrt(1 - a) * noise) / math.sqrt(a)
            x = math.sqrt(after) * x0 + math.sqrt(1 - after) * noise
            trajectory.append(x)
        return np.array(trajectory)
