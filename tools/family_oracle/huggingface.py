"""Logits of Hugging Face transformers' own classes, in fp32 with eager attention.

Where their code departs from the published model it is patched, and the patches are named: they are written into each
fixture's expected.json.
"""
import copy

import torch
import transformers
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3
from transformers.models.glm4_moe_lite import modeling_glm4_moe_lite as glm
from transformers.models.minicpm3 import modeling_minicpm3 as minicpm3

CLASSES = {
    "deepseek_v2": (v2.DeepseekV2Config, v2.DeepseekV2ForCausalLM),
    "deepseek_v3": (v3.DeepseekV3Config, v3.DeepseekV3ForCausalLM),
    "kimi_k2": (v3.DeepseekV3Config, v3.DeepseekV3ForCausalLM),
    "minicpm3": (minicpm3.MiniCPM3Config, minicpm3.MiniCPM3ForCausalLM),
    "glm4_moe_lite": (glm.Glm4MoeLiteConfig, glm.Glm4MoeLiteForCausalLM),
}


def state_dict(weights):
    """Published names -> the class's own: experts of a layer are stacked, gate above up."""
    state, stacks = {}, {}
    for name, x in weights.items():
        if ".experts." not in name:
            state[name] = x
            continue
        prefix, rest = name.split(".experts.")
        expert, part = rest.split(".")[:2]
        stacks.setdefault(prefix, {})[int(expert), part] = x
    for prefix, parts in stacks.items():
        number = 1 + max(e for e, _ in parts)
        both = [torch.cat([parts[e, "gate_proj"], parts[e, "up_proj"]]) for e in range(number)]
        state[prefix + ".experts.gate_up_proj"] = torch.stack(both)
        state[prefix + ".experts.down_proj"] = torch.stack([parts[e, "down_proj"] for e in range(number)])
    if "lm_head.weight" not in state:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


class FixedRotary(torch.nn.Module):
    """cos = 1, sin = 0 for P dims: positions leave them as they are. P may be 0."""

    def __init__(self, dims):
        super().__init__()
        self.dims = dims

    def forward(self, x, position_ids):
        shape = (*position_ids.shape, self.dims)
        return torch.ones(shape), torch.zeros(shape)


def normalised_gate(gate):
    """DeepSeek-V2's published gate with norm_topk_prob: weights over their sum. Precondition: no scaling factor."""
    plain = gate.forward

    def forward(hidden):
        logits, weights, indices = plain(hidden)
        return logits, weights / (weights.sum(-1, keepdim=True) + 1e-20), indices

    return forward


def patch(model, config):
    """Changes the model to the published formula; returns what was changed and why."""
    done = []
    if config["qk_rope_head_dim"] == 0:
        model.model.rotary_emb = FixedRotary(0)
        done.append("rotary_emb: tables of no columns; the class takes a head_dim of 0 for one that is not set")
    if config.get("mla_use_nope"):
        model.model.rotary_emb = FixedRotary(config["qk_rope_head_dim"])
        done.append("rotary_emb: cos 1 and sin 0; the class does not read mla_use_nope, a field of Kimi-Linear")
    if config["model_type"] == "deepseek_v2" and config["norm_topk_prob"]:
        for layer in model.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.forward = normalised_gate(layer.mlp.gate)
        done.append("gate: weights divided by their sum, as DeepSeek-V2's published gate does for norm_topk_prob; the "
                    "class does not read the field")
    return done


@torch.no_grad()
def logits(config, weights, ids):
    """fp32 logits [T, vocab], the class's name and the patches."""
    config_class, model_class = CLASSES[config["model_type"]]
    fields = {k: copy.deepcopy(v) for k, v in config.items()  # the classes write into what they are given
              if k not in ("quantization_config", "architectures", "model_type")}
    eager = {"attn_implementation": "eager"}
    if config["model_type"] != "minicpm3":
        eager["experts_implementation"] = "eager"
    model = model_class._from_config(config_class(**fields), dtype=torch.float32, **eager)
    model.load_state_dict(state_dict(weights), strict=True)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    patches = patch(model.eval(), config)
    out = model(torch.tensor([ids]), use_cache=False).logits[0]
    return out, f"transformers {transformers.__version__} {model_class.__name__}", patches
