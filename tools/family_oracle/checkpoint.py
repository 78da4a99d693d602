"""Random tiny checkpoints: tensors of a config, bf16 or fp8 in blocks, and safetensors files."""
import json
import math
import zlib

import numpy as np
import torch
from safetensors.torch import save_file

BLOCK = 128  # weight_block_size of DeepSeek's fp8
FP8_LARGEST = 448.0
# Blocks of these tensors are stored with their largest value at 1, so that a few percent of the values are subnormal.
SUBNORMAL = ("kv_b_proj.weight", "o_proj.weight")


def shapes(c, spec):
    """Name -> shape, with Hugging Face's names."""
    hidden, table = c["hidden_size"], {}

    def mlp(prefix, inner):
        table[prefix + "gate_proj.weight"] = table[prefix + "up_proj.weight"] = (inner, hidden)
        table[prefix + "down_proj.weight"] = (hidden, inner)

    table["model.embed_tokens.weight"] = (c["vocab_size"], hidden)
    for i in range(spec.layers):
        layer = f"model.layers.{i}."
        attn = layer + "self_attn."
        table[layer + "input_layernorm.weight"] = table[layer + "post_attention_layernorm.weight"] = (hidden,)
        queries = spec.H * (spec.N + spec.P)
        if spec.q_lora:
            table[attn + "q_a_proj.weight"] = (c["q_lora_rank"], hidden)
            table[attn + "q_a_layernorm.weight"] = (c["q_lora_rank"],)
            table[attn + "q_b_proj.weight"] = (queries, c["q_lora_rank"])
        else:
            table[attn + "q_proj.weight"] = (queries, hidden)
        table[attn + "kv_a_proj_with_mqa.weight"] = (spec.R + spec.P, hidden)
        table[attn + "kv_a_layernorm.weight"] = (spec.R,)
        table[attn + "kv_b_proj.weight"] = (spec.H * (spec.N + spec.V), spec.R)
        table[attn + "o_proj.weight"] = (hidden, spec.H * spec.V)
        if i not in spec.moe_layers:
            mlp(layer + "mlp.", c["intermediate_size"])
            continue
        table[layer + "mlp.gate.weight"] = (c["n_routed_experts"], hidden)
        if spec.method == "noaux_tc":
            table[layer + "mlp.gate.e_score_correction_bias"] = (c["n_routed_experts"],)
        for e in range(c["n_routed_experts"]):
            mlp(f"{layer}mlp.experts.{e}.", c["moe_intermediate_size"])
        mlp(layer + "mlp.shared_experts.", c["moe_intermediate_size"] * c["n_shared_experts"])
    table["model.norm.weight"] = (hidden,)
    if not spec.tied:
        table["lm_head.weight"] = (c["vocab_size"], hidden)
    return table


def random_tensor(name, shape, spec, gains, seed):
    """float32. Products have standard deviation gain / sqrt(fan-in); sharp attention comes from the queries' gain."""
    x = np.random.default_rng([seed, zlib.crc32(name.encode())]).standard_normal(shape)
    if name.endswith("e_score_correction_bias"):
        return gains["bias_mean"] + gains["bias_spread"] * x
    if name.endswith("norm.weight"):
        return 1 + 0.2 * x
    if name.endswith("embed_tokens.weight"):
        return x / spec.embedding_scale
    x = x / math.sqrt(shape[1])
    if name.endswith(("q_proj.weight", "q_b_proj.weight")):
        x = x * gains["q"]
    if name.endswith("mlp.gate.weight"):
        x = x * gains["router"]
    if name.endswith(("kv_a_proj_with_mqa.weight")):
        x[: spec.R] *= gains["latent"]
    if name.endswith("q_a_proj.weight"):
        x = x * gains["latent"]
    return x


def fp8_blocks(name, w, ue8m0, seed):
    """w -> E4M3 values and the F32 scale of each [128, 128] block; neighbouring blocks differ in size."""
    grid = [-(-n // BLOCK) for n in w.shape]
    vary = np.random.default_rng([seed, zlib.crc32(name.encode()), 8]).uniform(0.4, 1.5, grid)
    rows, cols = (np.arange(n) // BLOCK for n in w.shape)
    w = torch.from_numpy(w * vary[rows][:, cols]).float()
    scale = torch.empty(grid, dtype=torch.float32)
    for i in range(grid[0]):
        for j in range(grid[1]):
            block = w[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
            scale[i, j] = block.abs().max() / (1.0 if name.endswith(SUBNORMAL) else FP8_LARGEST)
    if ue8m0:
        scale = torch.exp2(torch.ceil(torch.log2(scale)))
    return (w / scale[rows][:, cols]).to(torch.float8_e4m3fn), scale


def dequantise(values, scale, rows=None, cols=None, flush=False):
    """fp32 weights; `rows` and `cols` give the block of each row and column where they are not the published ones."""
    rows = np.arange(values.shape[0]) // BLOCK if rows is None else rows
    cols = np.arange(values.shape[1]) // BLOCK if cols is None else cols
    x = values.float()
    if flush:
        x = torch.where(x.abs() < 2.0**-6, torch.zeros(()), x)
    return x * scale[rows][:, cols]


def is_fp8(name, shape):
    return len(shape) == 2 and ".layers." in name and not name.endswith("mlp.gate.weight")


def make(case, spec):
    """Tensors as the files hold them."""
    stored = {}
    for name, shape in shapes(case.config, spec).items():
        w = random_tensor(name, shape, spec, case.gains, case.seed)
        if name.endswith("e_score_correction_bias"):
            stored[name] = torch.from_numpy(w).float()
        elif "quantization_config" in case.config and is_fp8(name, shape):
            ue8m0 = case.config["quantization_config"].get("scale_fmt") == "ue8m0"
            stored[name], stored[name + "_scale_inv"] = fp8_blocks(name, w, ue8m0, case.seed)
        else:
            stored[name] = torch.from_numpy(w).to(torch.bfloat16)
    return stored


def values(stored, read=dequantise):
    """fp32 weights of stored tensors, scales applied."""
    out = {}
    for name, x in stored.items():
        if name.endswith("_scale_inv"):
            continue
        scale = stored.get(name + "_scale_inv")
        out[name] = x.float() if scale is None else read(x, scale)
    return out


def fp8_readings(stored, spec):
    """(name, weights) of wrong ways to read fp8 blocks."""
    def by_head(x, scale):
        head = spec.N + spec.V
        if x.shape != (spec.H * head, spec.R):
            return dequantise(x, scale)
        return dequantise(x, scale, rows=np.minimum(np.arange(x.shape[0]) // head * head // BLOCK, scale.shape[0] - 1))

    wrong = {
        "fp8 subnormals flushed": lambda x, s: dequantise(x, s, flush=True),
        "one scale for a tensor": lambda x, s: x.float() * s[0, 0],
        "each head has the block of its first row": by_head,
        "blocks of 64": lambda x, s: dequantise(x, s, *(np.minimum(np.arange(n) // 64, g - 1)
                                                        for n, g in zip(x.shape, s.shape))),
        "scale divides": lambda x, s: dequantise(x, 1 / s),
    }
    for name, read in wrong.items():
        yield name, values(stored, read)


def save(directory, stored, shards):
    names = sorted(stored)
    if shards == 1:
        save_file({n: stored[n].contiguous() for n in names}, directory / "model.safetensors", {"format": "pt"})
        return
    weight_map, total = {}, 0
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[len(names) * i // shards : len(names) * (i + 1) // shards]
        save_file({n: stored[n].contiguous() for n in part}, directory / file, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
        total += sum(stored[n].nbytes for n in part)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
