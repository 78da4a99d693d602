"""The ways in which an engine may misread a config or a checkpoint, each as a change of the right reading."""
import numpy as np

from formula import changed, mscale


def attention_readings(s, c):
    yield "latent not normalised", changed(s, kv_norm="none")
    yield "kv_b_proj: values before keys in a head", changed(s, values_first=True)
    if s.q_lora:
        yield "query latent not normalised", changed(s, q_norm=False)
    if s.eps != s.latent_eps:
        yield "rms_norm_eps in the latents' norms", changed(s, latent_eps=s.eps)
    if s.P:
        yield "latent's norm over k_pe as well", changed(s, kv_norm="all")
        yield "softmax scale of qk_nope_head_dim alone", changed(
            s, softmax_scale=s.softmax_scale * ((s.N + s.P) / s.N) ** 0.5)
    if s.layout == "none":
        if s.P:
            yield "mla_use_nope unread", changed(s, layout="interleaved")
        return
    yield "other rope layout", changed(s, layout="half" if s.layout == "interleaved" else "interleaved")
    if s.cos_scale != 1:
        yield "cos and sin not scaled", changed(s, cos_scale=1.0)
    if not np.array_equal(s.plain, s.frequencies):
        yield "frequencies not scaled", changed(s, frequencies=s.plain)
    if s.other_factors is not None:
        yield "longrope's other list", changed(s, frequencies=s.other_factors)
    rope = c.get("rope_scaling") or {}
    if rope.get("mscale_all_dim"):
        m = mscale(rope["factor"], rope["mscale_all_dim"])
        yield "no mscale^2 in the softmax scale", changed(s, softmax_scale=s.softmax_scale / m**2)


def expert_readings(s, negative_choices):
    if not s.moe_layers:
        return
    yield "other scoring_func", changed(s, scoring="softmax" if s.scoring == "sigmoid" else "sigmoid")
    yield "norm_topk_prob negated", changed(s, norm_topk=not s.norm_topk)
    yield "no shared experts", changed(s, shared=False)
    if s.routed_scale != 1:
        yield "no routed_scaling_factor", changed(s, routed_scale=1.0)
    if s.method == "noaux_tc":
        yield "no bias in the choice", changed(s, use_bias=False)
        yield "bias in the weights", changed(s, bias_weighs=True)
    if s.method != "greedy" and s.groups > 1:
        other = "group_limited_greedy" if s.method == "noaux_tc" else "noaux_tc"
        yield "groups unread", changed(s, groups=1)
        yield "inverted group mask", changed(s, mask="inverted")
        yield "groups scored as in " + other, changed(s, group_score=other)
    if negative_choices and s.groups > 1:
        yield "masked groups count as 0, not -inf", changed(s, mask="zero")


def minicpm_readings(s):
    if s.embedding_scale != 1:
        yield "no scale_emb", changed(s, embedding_scale=1)
        yield "no scale_depth", changed(s, residual_scale=1.0)
        yield "no dim_model_base", changed(s, logit_scale=1.0)


def readings(s, c, negative_choices):
    """(name, wrong spec) of every reading that this config can tell from the right one. `negative_choices`: whether
    experts were chosen whose score and bias sum to less than 0."""
    yield from attention_readings(s, c)
    yield from expert_readings(s, negative_choices)
    yield from minicpm_readings(s)
