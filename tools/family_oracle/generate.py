#!/usr/bin/env python3
"""Makes tests/conformance/data: tiny checkpoints of every family with their logits, routing vectors, rope tables.

    python -m venv oracle && oracle/bin/pip install -r tools/family_oracle/requirements.txt
    oracle/bin/python tools/family_oracle/generate.py tests/conformance/data [CASE ...]

The logits are Hugging Face transformers' (huggingface.py), held against the published formula in float64 (formula.py).
It takes the first seed for which the two agree to AGREE, attention is sharp (its entropy below half of a uniform row's)
and routing decisions are clear of fp32's rounding; it fails where there is none, or where a wrong reading of the
checkpoint (readings.py) does not move the logits by more than a hundred tolerances.
"""
import json
import pathlib
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import cases
import checkpoint
import formula
import huggingface
import readings
import rope_tables
import routing_vectors

TOLERANCE = 1e-5  # of a position's logits: norm of the difference over norm
AGREE = 2.5e-6    # between fp32 and float64, so that most of the tolerance is left to what is tested
MARGIN = 2e-4     # between chosen and left out, in scores; fp32 moves scores by about 1e-6
LENGTH = 48


def relative(a, b):
    """Largest relative error of a row, by norm."""
    return float((np.linalg.norm(a - b, axis=-1) / np.linalg.norm(b, axis=-1)).max())


def moved(wrong, right):
    """How far a wrong reading is off over all rows, by norm; a reading that gives no numbers is as wrong as can be."""
    return float(np.linalg.norm(wrong - right) / np.linalg.norm(right)) if np.isfinite(wrong).all() else np.inf


def measure_readings(case, spec, a):
    found = {}
    for name, wrong in readings.readings(spec, case.config, a.seen.negative_choices > 0):
        with np.errstate(all="ignore"):  # a wrong reading may overflow
            found[name] = moved(formula.forward(wrong, a.doubles, a.ids)[0], a.right)
    if "quantization_config" in case.config:
        for name, wrong in checkpoint.fp8_readings(a.stored, spec):
            doubles = {k: v.double().numpy() for k, v in wrong.items()}
            with np.errstate(all="ignore"):
                found[name] = moved(formula.forward(spec, doubles, a.ids)[0], a.right)
    return found


def attempt(case, spec):
    """One seed: checkpoint, ids, both oracles' logits, and what was seen on the way."""
    a = SimpleNamespace(stored=checkpoint.make(case, spec))
    weights = checkpoint.values(a.stored)
    a.doubles = {k: v.double().numpy() for k, v in weights.items()}
    a.ids = np.random.default_rng([case.seed, LENGTH]).integers(0, case.config["vocab_size"], LENGTH).tolist()
    a.right, a.seen = formula.forward(spec, a.doubles, a.ids)
    a.margin, a.entropy = min(a.seen.margins, default=None), float(np.mean(a.seen.entropy))
    a.logits, a.oracle, a.patches = huggingface.logits(case.config, weights, a.ids)
    a.agree = relative(a.logits.double().numpy(), a.right)
    return a


def rounded(x):
    return float(f"{x:.2g}")


def describe(case, a, found):
    checks = {"fp32_against_float64": rounded(a.agree), "attention_entropy": rounded(a.entropy)}
    if a.margin is not None:
        checks["smallest_routing_margin"] = rounded(a.margin)
    lines = {"about": case.about, "oracle": a.oracle, "patches": a.patches, "seed": case.seed, "context": case.context,
             "ids": a.ids, "checks": checks, "wrong_readings": {k: rounded(v) for k, v in found.items()}}
    body = ",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in lines.items())
    return "{\n" + body + "\n}\n"


def make_case(case, root):
    spec = formula.read_config(case.config, case.context)
    for case.seed in range(1, 100):
        a = attempt(case, spec)
        if a.agree < AGREE and a.entropy < 0.5 and (a.margin is None or a.margin > MARGIN):
            break
    else:
        raise SystemExit(f"{case.name}: no seed will do")
    found = measure_readings(case, spec, a)
    nearest = min(found, key=found.get)
    print(f"{case.name}: seed {case.seed}, fp32 against float64 {a.agree:.2g}, entropy {a.entropy:.2f} of uniform, "
          f"margin {a.margin and rounded(a.margin)}, {a.seen.negative_choices} negative choices, nearest of "
          f"{len(found)} wrong readings: {nearest}, {found[nearest]:.2g}", flush=True)
    if not found[nearest] > 100 * TOLERANCE:
        raise SystemExit(f"{case.name}: '{nearest}' moves the logits by {found[nearest]:.2g} alone")

    directory = root / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(case.config, indent=1) + "\n")
    checkpoint.save(directory, a.stored, case.shards)
    save_file({"logits": a.logits.contiguous()}, directory / "expected.safetensors")
    (directory / "expected.json").write_text(describe(case, a, found))


def main():
    root, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for case in cases.all_cases():
        if not wanted or case.name in wanted:
            make_case(case, root)
    if not wanted:
        routing_vectors.write(root / "routing.json")
        rope_tables.write(root / "rope.json")


if __name__ == "__main__":
    main()
