"""The published models once more, in numpy and float64: explicit attention, one loop per head and per expert.

Written from the DeepSeek-V2 and -V3 reports, the YaRN and LongRoPE papers and the models' published code; shares
nothing with Hugging Face's classes. What `read_config` returns says how a config is read. Its fields are switches, so
that a wrong reading is the right one with a field changed, and one can measure how far it moves the logits.
"""
import copy
import math
from types import SimpleNamespace

import numpy as np


def mscale(factor, scale):
    """YaRN's temperature (arXiv 2309.00071, equation 22) with DeepSeek's coefficient."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def yarn_frequencies(dim, theta, factor, original, beta_fast, beta_slow):
    """YaRN, section 3.2: pairs that turn often within the original window keep their speed, slow ones are stretched."""
    def pair_at(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(pair_at(beta_fast)), 0), min(math.ceil(pair_at(beta_slow)), dim - 1)
    pair = np.arange(dim // 2)
    stretched = np.clip((pair - low) / (high - low if high != low else 1e-3), 0, 1)
    plain = theta ** (-2.0 * pair / dim)
    return plain * (1 - stretched) + plain / factor * stretched


def read_rope(s, c, context):
    rope = c.get("rope_scaling") or c.get("rope_parameters") or {}
    theta = float(rope.get("rope_theta", c.get("rope_theta", 10000)))
    kind = rope.get("type", rope.get("rope_type", "default"))
    s.cos_scale, s.plain = 1.0, theta ** (-2.0 * np.arange(s.P // 2) / max(s.P, 1))
    s.frequencies, s.other_factors = s.plain, None
    if kind == "yarn":
        f, all_dim = rope["factor"], rope.get("mscale_all_dim", 0)
        s.frequencies = yarn_frequencies(s.P, theta, f, rope["original_max_position_embeddings"],
                                         rope.get("beta_fast", 32), rope.get("beta_slow", 1))
        s.softmax_scale *= mscale(f, all_dim) ** 2
        s.cos_scale = mscale(f, rope.get("mscale", 1)) / mscale(f, all_dim)
    elif kind == "longrope":
        original = rope["original_max_position_embeddings"]
        lists = [np.array(rope["short_factor"]), np.array(rope["long_factor"])]
        s.frequencies, s.other_factors = (s.plain / lists[i] for i in ((1, 0) if context > original else (0, 1)))
        stretch = c["max_position_embeddings"] / original
        s.cos_scale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    elif kind != "default":
        raise ValueError(kind)


def read_config(c, context):
    """How the published code of c["model_type"] reads the config, for a context of so many positions."""
    family = c["model_type"]
    s = SimpleNamespace(H=c["num_attention_heads"], N=c["qk_nope_head_dim"], P=c["qk_rope_head_dim"],
                        R=c["kv_lora_rank"], layers=c["num_hidden_layers"], eps=c["rms_norm_eps"], latent_eps=1e-6)
    s.V = c.get("v_head_dim", c["hidden_size"] // s.H)
    s.q_lora = c["q_lora_rank"] is not None
    s.softmax_scale = (s.N + s.P) ** -0.5
    read_rope(s, c, context)
    half_split = family == "minicpm3" or not c.get("rope_interleave", True)
    s.layout = "none" if c.get("mla_use_nope") or s.P == 0 else "half" if half_split else "interleaved"
    s.q_norm, s.kv_norm, s.values_first = True, "latent", False
    minicpm = family == "minicpm3"
    s.tied = c.get("tie_word_embeddings", minicpm)
    s.embedding_scale = c["scale_emb"] if minicpm else 1
    s.residual_scale = c["scale_depth"] / math.sqrt(s.layers) if minicpm else 1.0
    s.logit_scale = c["dim_model_base"] / c["hidden_size"] if minicpm else 1.0
    if minicpm:
        s.moe_layers = []
        return s
    types = c.get("mlp_layer_types")
    s.moe_layers = [i for i in range(s.layers) if (types[i] == "sparse" if types else i >= c["first_k_dense_replace"])]
    glm = family == "glm4_moe_lite"
    s.scoring, s.method = ("sigmoid", "noaux_tc") if glm else (c["scoring_func"], c["topk_method"])
    s.groups, s.topk_group, s.top_k = c["n_group"], c["topk_group"], c["num_experts_per_tok"]
    s.norm_topk, s.routed_scale = c["norm_topk_prob"], c["routed_scaling_factor"]
    # DeepSeek-V2's published gate applies one of the two, V3's both: no case of V2 has both.
    assert not (family == "deepseek_v2" and s.norm_topk and s.routed_scale != 1)
    s.use_bias, s.bias_weighs, s.group_score, s.mask, s.shared = True, False, s.method, "others out", True
    return s


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rotate(s, x):
    """x [T, ..., P], row t at position t."""
    if s.layout == "none":
        return x
    angle = np.arange(len(x))[:, None] * s.frequencies
    cos, sin = (f(angle).reshape(len(x), *[1] * (x.ndim - 2), -1) * s.cos_scale for f in (np.cos, np.sin))
    half, interleaved = s.P // 2, s.layout == "interleaved"
    first = slice(0, None, 2) if interleaved else slice(half)
    second = slice(1, None, 2) if interleaved else slice(half, None)
    out = np.empty_like(x)
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def choose_groups(s, choice, seen):
    """Leaves the choices of the topk_group best groups; the others' become -inf."""
    size = len(choice) // s.groups
    best = np.sort(choice.reshape(s.groups, size), -1)[:, ::-1]
    worth = best[:, :2].sum(-1) if s.group_score == "noaux_tc" else best[:, 0]
    order = np.argsort(-worth, kind="stable")
    if s.topk_group < s.groups:
        seen.margins.append(worth[order[s.topk_group - 1]] - worth[order[s.topk_group]])
    kept = np.isin(np.arange(len(choice)) // size, order[: s.topk_group])
    if s.mask == "inverted":
        kept = ~kept
    return np.where(kept, choice, 0.0 if s.mask == "zero" else -np.inf)


def route(s, logits, bias, seen):
    """logits [experts] -> indices and weights of the chosen. DeepSeek-V2 report 2.2.2, DeepSeek-V3 report 2.1.2."""
    score = softmax(logits) if s.scoring == "softmax" else 1 / (1 + np.exp(-logits))
    choice = score + bias if s.method == "noaux_tc" and s.use_bias else score.copy()
    weigh = choice.copy() if s.bias_weighs else score
    if s.method != "greedy" and s.groups > 1:
        choice = choose_groups(s, choice, seen)
    order = np.argsort(-choice, kind="stable")
    chosen = order[: s.top_k]
    if s.top_k < len(order):
        seen.margins.append(choice[order[s.top_k - 1]] - choice[order[s.top_k]])
    seen.negative_choices += int((choice[chosen] < 0).sum())
    weight = weigh[chosen]
    if s.norm_topk:
        weight = weight / (weight.sum() + 1e-20)
    return chosen, weight * s.routed_scale


def mlp(w, prefix, x):
    gate, up, down = (w[f"{prefix}{name}_proj.weight"] for name in ("gate", "up", "down"))
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def experts(s, w, prefix, x, seen):
    out = mlp(w, prefix + "shared_experts.", x) if s.shared else np.zeros_like(x)
    bias = w.get(prefix + "gate.e_score_correction_bias")
    for t, logits in enumerate(x @ w[prefix + "gate.weight"].T):
        for e, weight in zip(*route(s, logits, bias, seen)):
            out[t] += weight * mlp(w, f"{prefix}experts.{e}.", x[t])
    return out


def attention(s, w, prefix, x, seen):
    def weight(name):
        return w[f"{prefix}{name}.weight"]

    rows = len(x)
    if s.q_lora:
        q = x @ weight("q_a_proj").T
        q = rms_norm(q, weight("q_a_layernorm"), s.latent_eps) if s.q_norm else q
        q = q @ weight("q_b_proj").T
    else:
        q = x @ weight("q_proj").T
    q = q.reshape(rows, s.H, s.N + s.P)
    kv = x @ weight("kv_a_proj_with_mqa").T
    latent, k_pe = kv[:, : s.R], kv[:, s.R:]
    if s.kv_norm == "latent":
        latent = rms_norm(latent, weight("kv_a_layernorm"), s.latent_eps)
    elif s.kv_norm == "all":
        normed = rms_norm(kv, np.concatenate([weight("kv_a_layernorm"), np.ones(s.P)]), s.latent_eps)
        latent, k_pe = normed[:, : s.R], normed[:, s.R:]
    q_pe, k_pe = rotate(s, q[..., s.N:]), rotate(s, k_pe)
    expanded = (latent @ weight("kv_b_proj").T).reshape(rows, s.H, s.N + s.V)
    visible = np.tril(np.ones((rows, rows), bool))
    heads = []
    for h in range(s.H):
        k, v = (expanded[:, h, s.V:], expanded[:, h, : s.V]) if s.values_first else (
            expanded[:, h, : s.N], expanded[:, h, s.N:])
        scores = (q[:, h, : s.N] @ k.T + q_pe[:, h] @ k_pe.T) * s.softmax_scale
        p = softmax(np.where(visible, scores, -np.inf))
        seen.entropy.append(np.mean([-(r * np.log(np.maximum(r, 1e-300))).sum() / math.log(t + 1)
                                     for t, r in enumerate(p) if t >= 8]))
        heads.append(p @ v)
    return np.concatenate(heads, -1) @ weight("o_proj").T


def forward(s, w, ids):
    """Logits [T, vocab] of one sequence from position 0, and what was seen on the way."""
    seen = SimpleNamespace(entropy=[], margins=[], negative_choices=0)
    x = w["model.embed_tokens.weight"][ids] * s.embedding_scale
    for i in range(s.layers):
        prefix = f"model.layers.{i}."
        normed = rms_norm(x, w[prefix + "input_layernorm.weight"], s.eps)
        x = x + attention(s, w, prefix + "self_attn.", normed, seen) * s.residual_scale
        normed = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], s.eps)
        if i in s.moe_layers:
            out = experts(s, w, prefix + "mlp.", normed, seen)
        else:
            out = mlp(w, prefix + "mlp.", normed)
        x = x + out * s.residual_scale
    head = w["model.embed_tokens.weight" if s.tied else "lm_head.weight"]
    return rms_norm(x, w["model.norm.weight"], s.eps) * s.logit_scale @ head.T, seen


def changed(s, **fields):
    s = copy.copy(s)
    for name, value in fields.items():
        assert hasattr(s, name), name
        setattr(s, name, value)
    return s
