"""Cos and sin of rotary positions far out, at fifty digits, written at seventeen.

The frequencies are the papers' (YaRN, arXiv 2309.00071, section 3.2; LongRoPE, arXiv 2402.13753) with the published
code's whole bounds of YaRN's ramp; cos and sin carry DeepSeek's ratio of mscales or LongRoPE's attention factor. Each
table has the config.json that it belongs to, so that the reading of the config is tested with it.
"""
import json

from mpmath import mp, mpf

import cases

POSITIONS = [0, 1, 63, 4095, 4096, 32767, 65535, 131071, 199999, 200000]
CONTEXT = POSITIONS[-1] + 1


def deepseek(dim, theta, scaling=None):
    return cases.deepseek(3, **cases.attention(4, None, 32, 16, dim, 16), **cases.experts(8, 2, 1), rope_theta=theta,
                          rope_scaling=scaling)


def minicpm3(original, maximum):
    factors = {"short_factor": [1 + i / 16 for i in range(16)], "long_factor": [1.5 + i * i / 8 for i in range(16)]}
    return cases.minicpm3(**cases.attention(4, 24, 32, 16, 32, 16), max_position_embeddings=maximum,
                          rope_scaling={"type": "longrope", **factors, "original_max_position_embeddings": original})


def tables():
    yield "plain, theta 1e4", deepseek(64, 10000)
    yield "plain, theta 5e4", deepseek(16, 50000.0)
    yield "plain, theta 1e6", deepseek(16, 1000000)
    yield "plain, theta 1e7", deepseek(16, 1e7)
    yield "yarn 40, mscale 1 and 1", deepseek(64, 10000, cases.yarn(40, 1.0, 1.0))
    yield "yarn 40, mscale 0.707 and 0.707", deepseek(16, 10000, cases.yarn(40, 0.707, 0.707))
    yield "yarn 40, mscale 1 and 0.707", deepseek(16, 10000, cases.yarn(40, 1.0, 0.707))
    yield "yarn 32, beta_fast 1, theta 5e4", deepseek(64, 50000.0, cases.yarn(32, 1.0, 1.0, 1))
    yield "yarn 64, beta_fast 1, theta 5e4", deepseek(32, 50000.0, cases.yarn(64, 1.0, 1.0, 1))
    # The context is within the one's original window and past the other's.
    yield "longrope, short", minicpm3(262144, 1048576)
    yield "longrope, long", minicpm3(32768, 262144)


def mscale(factor, scale):
    return 1 + mpf("0.1") * mpf(str(scale)) * mp.log(factor)


def yarn(plain, theta, r):
    dim, original, pi = 2 * len(plain), r["original_max_position_embeddings"], mp.pi

    def pair_at(turns):
        return dim * mp.log(original / (2 * pi * turns)) / (2 * mp.log(theta))

    low, high = max(mp.floor(pair_at(r["beta_fast"])), 0), min(mp.ceil(pair_at(r["beta_slow"])), dim - 1)
    ramp = [min(max((i - low) / (high - low), 0), 1) for i in range(len(plain))]
    amplitude = mscale(r["factor"], r["mscale"]) / mscale(r["factor"], r["mscale_all_dim"])
    return [f * (1 - x) + f / r["factor"] * x for f, x in zip(plain, ramp)], amplitude


def longrope(plain, r, maximum):
    original = r["original_max_position_embeddings"]
    factors = r["long_factor"] if CONTEXT > original else r["short_factor"]
    amplitude = mp.sqrt(1 + mp.log(mpf(maximum) / original) / mp.log(original))
    return [f / mpf(x) for f, x in zip(plain, factors)], amplitude


def table(name, config):
    dim, theta = config["qk_rope_head_dim"], mpf(config.get("rope_theta", 10000))
    frequencies, amplitude = [theta ** (mpf(-2 * i) / dim) for i in range(dim // 2)], mpf(1)
    scaling = config["rope_scaling"]
    if scaling and scaling["type"] == "yarn":
        frequencies, amplitude = yarn(frequencies, theta, scaling)
    elif scaling:
        frequencies, amplitude = longrope(frequencies, scaling, config["max_position_embeddings"])
    half = dim // 2
    pairs = sorted({0, 1, half // 4, half // 2, half // 2 + 1, 3 * half // 4, half - 1})
    rows = []
    for p in POSITIONS:
        angles = [p * frequencies[i] for i in pairs]
        rows.append([[float(f(a) * amplitude) for a in angles] for f in (mp.cos, mp.sin)])
    return {"name": name, "config": json.dumps(config), "context": CONTEXT, "positions": POSITIONS, "pairs": pairs,
            "cos": [cos for cos, _ in rows], "sin": [sin for _, sin in rows]}


def write(path):
    mp.dps = 50
    found = [table(name, config) for name, config in tables()]
    path.write_text("[\n" + ",\n".join(json.dumps(t) for t in found) + "\n]\n")
    print(f"{path.name}: {len(found)} tables")
