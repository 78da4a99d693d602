"""Routing vectors: which experts a token visits and with what weights, from the published formulas.

Logits and biases are multiples of 1/64: equal ones are equal in every precision, so that ties are ties. What is no tie
is further apart than MARGIN, a hundred roundings of fp32. Every vector is worked out twice: by sorting, here, and by
formula.route; the script fails where the two differ.
"""
import json
import math
from types import SimpleNamespace

import numpy as np

import formula

MARGIN = 2e-5
SCORING = ("softmax", "sigmoid")
METHODS = ("greedy", "group_limited_greedy", "noaux_tc")


def scores(kind, logits):
    if kind == "sigmoid":
        return [1 / (1 + math.exp(-x)) for x in logits]
    powers = [math.exp(x - max(logits)) for x in logits]
    return [p / math.fsum(powers) for p in powers]


def best(values, count):
    """Indices of the largest, best first, the lower index first among equals; asserts that the rest is clear."""
    order = sorted(values, key=lambda i: (-values[i], i))
    for a, b in zip(order, order[1:]):
        assert values[a] == values[b] or values[a] - values[b] > MARGIN, (values[a], values[b])
    return order[:count]


def route(v):
    score = scores(v["scoring_func"], v["logits"])
    biased = v["topk_method"] == "noaux_tc"
    choice = {e: s + (v["bias"][e] if biased else 0.0) for e, s in enumerate(score)}
    if v["topk_method"] != "greedy":
        size = len(score) // v["n_group"]
        groups = {g: range(g * size, (g + 1) * size) for g in range(v["n_group"])}
        worth = {g: sum(sorted((choice[e] for e in members), reverse=True)[: 2 if biased else 1])
                 for g, members in groups.items()}
        choice = {e: choice[e] for g in best(worth, v["topk_group"]) for e in groups[g]}
    chosen = best(choice, v["num_experts_per_tok"])
    total = math.fsum(score[e] for e in chosen) if v["norm_topk_prob"] else 1.0
    return chosen, [score[e] / total * v["routed_scaling_factor"] for e in chosen]


def check(v):
    s = SimpleNamespace(scoring=v["scoring_func"], method=v["topk_method"], groups=v["n_group"],
                        topk_group=v["topk_group"], top_k=v["num_experts_per_tok"], norm_topk=v["norm_topk_prob"],
                        routed_scale=v["routed_scaling_factor"], use_bias=True, bias_weighs=False,
                        group_score=v["topk_method"], mask="others out")
    seen = SimpleNamespace(margins=[], negative_choices=0)
    bias = np.array(v["bias"]) if v["bias"] else None
    experts, weights = formula.route(s, np.array(v["logits"]), bias, seen)
    assert experts.tolist() == v["experts"] and np.allclose(weights, v["weights"], rtol=1e-14), v["name"]


def levels(rng, experts, spread=1.5):
    """Distinct multiples of a 48th of the range, which is -spread to spread."""
    return (rng.permutation(48)[:experts] * (spread / 24) - spread).tolist()


def shapes(rng):
    """(name, logits, bias, n_group, topk_group, top_k, norm, scale) of each vector; greedy ignores groups."""
    zeros, some, small = [0.0] * 16, levels(rng, 16), levels(rng, 16, 0.375)
    permuted = [x for g in range(4) for x in np.roll([-1.0, 0.25, 1.5, 2.0], g).tolist()]
    # Of four groups the first has the best expert, the second the best two, the third the best four.
    worth = [3.0, -3.0, -3.0, -3.0, 2.0, 1.75, -3.0, -3.0, 1.0, 1.25, 1.5, 1.125, -1.0, -1.0, -1.0, -1.0]
    yield "normalised and scaled", some, small, 4, 2, 4, True, 2.5
    yield "neither normalised nor grouped", some, small, 1, 1, 6, False, 1.0
    yield "scaled alone", levels(rng, 16), small, 4, 3, 3, False, 16.0
    yield "normalised alone", levels(rng, 16), small, 4, 1, 2, True, 1.0
    yield "tied experts", [1.0, 0.0, 1.0, 2.0] * 4, zeros, 4, 2, 5, True, 1.0
    yield "tied groups of unlike order", permuted, zeros, 4, 2, 3, False, 1.0
    yield "tied groups behind one that is better", worth[4:8] * 2 + worth[:4] + worth[4:8], zeros, 4, 3, 4, True, 2.0
    yield "all tied", zeros, zeros, 4, 3, 6, True, 2.827
    yield "groups by their best, their two best, their sum", worth, zeros, 4, 1, 2, False, 1.0
    yield "every choice negative", some, [x - 2.0 for x in small], 4, 2, 4, True, 2.5
    yield "some choices negative", some, [-0.25 - 0.5 * (e % 3) for e in range(16)], 4, 2, 7, False, 2.5
    yield "negative choices in kept groups, positive ones elsewhere", [0.0] * 16, [
        -0.75, -0.875, 0.25, -0.625, 0.125, 0.0625, -2.0, -2.0, 0.5, -1.5, -1.75, -1.625, -3.0, -3.0, -3.0, -3.0,
    ], 4, 2, 5, True, 1.0
    yield "large biases against the scores", some, [4.0 - e * 0.5 for e in range(16)], 4, 2, 4, True, 2.5
    yield "one expert", some, small, 4, 1, 1, False, 2.446
    yield "every expert", some, small, 4, 4, 16, True, 1.8
    yield "every expert of the kept groups", some, small, 4, 2, 8, False, 1.0
    yield "two experts in a group", some, small, 8, 3, 4, True, 2.5
    yield "three experts and one group", [0.5, -1.0, 0.5], [0.0, 0.25, 0.0], 1, 1, 2, True, 1.0


def vectors():
    out, rng = [], np.random.default_rng(20)
    for scoring in SCORING:
        for method in METHODS:
            for name, logits, bias, groups, topk_group, top_k, norm, scale in shapes(rng):
                v = {"name": f"{scoring}, {method}: {name}", "scoring_func": scoring, "topk_method": method,
                     "n_group": groups, "topk_group": topk_group, "num_experts_per_tok": top_k, "norm_topk_prob": norm,
                     "routed_scaling_factor": scale, "logits": logits, "bias": bias if method == "noaux_tc" else []}
                v["experts"], v["weights"] = route(v)
                check(v)
                out.append(v)
    return out


def write(path):
    found = vectors()
    path.write_text("[\n" + ",\n".join(json.dumps(v) for v in found) + "\n]\n")
    print(f"{path.name}: {len(found)} vectors")
