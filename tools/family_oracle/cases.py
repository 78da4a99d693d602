"""The fixtures' configs: keys as each family publishes them, dims small and odd."""
from types import SimpleNamespace

COMMON = {"attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02,
          "torch_dtype": "bfloat16", "use_cache": True, "bos_token_id": 0, "eos_token_id": 1}
GAINS = {"q": 2.0, "router": 1.5, "latent": 1.0, "bias_mean": 0.0, "bias_spread": 0.2}
# Where no mscale sharpens attention.
SHARPER = {"q": 3.2}
# Latents so small that 1e-5 and 1e-6 in their norm differ.
SMALL_LATENT = {"latent": 0.05, **SHARPER}


def yarn(factor, mscale, all_dim, beta_fast=32):
    return {"type": "yarn", "factor": factor, "original_max_position_embeddings": 4096, "beta_fast": beta_fast,
            "beta_slow": 1, "mscale": mscale, "mscale_all_dim": all_dim}


def attention(heads, q_lora, latent, nope, rope, value):
    return {"num_attention_heads": heads, "num_key_value_heads": heads, "q_lora_rank": q_lora, "kv_lora_rank": latent,
            "qk_nope_head_dim": nope, "qk_rope_head_dim": rope, "v_head_dim": value}


def experts(number, top_k, shared, groups=1, topk_group=1, scale=1.0, norm=True, first_dense=1):
    return {"n_routed_experts": number, "num_experts_per_tok": top_k, "n_shared_experts": shared, "n_group": groups,
            "topk_group": topk_group, "routed_scaling_factor": scale, "norm_topk_prob": norm,
            "moe_intermediate_size": 12, "first_k_dense_replace": first_dense}


def deepseek(version, **fields):
    routing = {2: {"scoring_func": "softmax", "topk_method": "greedy"},
               3: {"scoring_func": "sigmoid", "topk_method": "noaux_tc"}}[version]
    return {"architectures": [f"DeepseekV{version}ForCausalLM"], "model_type": f"deepseek_v{version}", **COMMON,
            "vocab_size": 64, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "moe_layer_freq": 1,
            "max_position_embeddings": 163840, "rms_norm_eps": 1e-6, "rope_theta": 10000, "rope_scaling": None,
            "tie_word_embeddings": False, "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1, "pretraining_tp": 1,
            **({"num_nextn_predict_layers": 0} if version == 3 else {}), **routing, **fields}


def minicpm3(**fields):
    """As MiniCPM3-4B is published: without v_head_dim, rope_theta and tie_word_embeddings."""
    base = {k: v for k, v in COMMON.items() if not k.startswith("attention_")}
    return {"architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3", **base, "vocab_size": 64,
            "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "rms_norm_eps": 1e-5,
            "max_position_embeddings": 32768, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16, **fields}


def longrope(original):
    return {"type": "longrope", "short_factor": [1.0, 1.125, 1.5, 2.25], "long_factor": [1.5, 3.0, 6.5, 12.0],
            "original_max_position_embeddings": original}


def without(config, *names):
    return {k: v for k, v in config.items() if k not in names}


def fp8(**fields):
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
            **fields}


def glm():
    """GLM-4.7-Flash as transformers 5 writes it: rope_parameters and mlp_layer_types; scoring_func is never there."""
    base = deepseek(3, **attention(20, 16, 16, 24, 8, 32), **experts(6, 3, 1, scale=1.8), hidden_size=32,
                    rms_norm_eps=1e-5, max_position_embeddings=202752)
    base = without(base, "scoring_func", "rope_theta", "rope_scaling", "first_k_dense_replace", "moe_layer_freq",
                   "aux_loss_alpha", "seq_aux", "ep_size", "torch_dtype")
    return {**base, "architectures": ["Glm4MoeLiteForCausalLM"], "model_type": "glm4_moe_lite", "dtype": "bfloat16",
            "partial_rotary_factor": 1.0, "mlp_layer_types": ["dense", "sparse"],
            "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}}


def case(name, about, config, shards=1, context=48, **gains):
    return SimpleNamespace(name=name, about=about, config=config, shards=shards, context=context,
                           gains={**GAINS, **gains}, seed=0)


def all_cases():
    v3, v2 = lambda **f: deepseek(3, **f), lambda **f: deepseek(2, **f)
    fp8_dims = {**attention(3, 40, 136, 32, 8, 48), "hidden_size": 136, "vocab_size": 64}
    return [
        case("deepseek_v3", "yarn with mscale unlike mscale_all_dim; groups; every choice value negative",
             v3(**attention(4, 40, 32, 16, 8, 12), **experts(8, 3, 1, 4, 2, 2.5), num_hidden_layers=3,
                rope_scaling=yarn(40, 1.0, 0.707)), bias_mean=-1.2),
        case("deepseek_v3_half_split", "rope_interleave false; one head; a choice in three groups of four",
             v3(**attention(1, 24, 24, 20, 12, 16), **experts(12, 4, 2, 4, 3, 2.5), rope_interleave=False,
                rope_scaling=yarn(40, 1.0, 1.0))),
        case("deepseek_v3_no_rope", "no rope dims; three heads; latent of 40; tied; values narrower than keys",
             v3(**attention(3, None, 40, 20, 0, 12), **experts(8, 2, 1, scale=2.0), tie_word_embeddings=True),
             **SHARPER),
        case("deepseek_v3_nope", "rope dims kept, never rotated (mla_use_nope); latent of 40; values wider than keys",
             v3(**attention(3, 32, 40, 12, 8, 20), **experts(8, 2, 1, scale=2.446), mla_use_nope=True), **SHARPER),
        case("deepseek_v2_lite", "q_lora_rank null; softmax, greedy; two shared experts",
             v2(**attention(4, None, 32, 16, 8, 16), **experts(8, 3, 2, norm=False),
                rope_scaling=yarn(40, 0.707, 0.707))),
        case("deepseek_v2", "group_limited_greedy; routed_scaling_factor 16",
             v2(**attention(4, 40, 32, 16, 8, 12), **experts(8, 3, 2, 4, 2, 16.0, norm=False),
                topk_method="group_limited_greedy", rope_scaling=yarn(40, 1.0, 1.0))),
        case("deepseek_v2_norm", "norm_topk_prob under softmax; two shards",
             v2(**attention(3, 24, 24, 16, 8, 16), **experts(8, 3, 1),
                rope_scaling=yarn(40, 0.707, 0.707)), shards=2),
        case("kimi_k2", "one head; yarn of factor 32 with beta_fast 1, theta 50000; no groups; latent of 40",
             v3(**attention(1, 32, 40, 16, 16, 16), **experts(8, 3, 1, scale=2.827), rope_theta=50000.0,
                rope_scaling=yarn(32, 1.0, 1.0, 1), model_type="kimi_k2", max_position_embeddings=131072)),
        case("moonlight", "no rope scaling; q_lora_rank null; rms_norm_eps 1e-5 beside 1e-6 in the latent's norm",
             v3(**attention(4, None, 32, 16, 8, 16), **experts(8, 3, 2, scale=2.446), rms_norm_eps=1e-5,
                rope_theta=50000.0, max_position_embeddings=8192), **SMALL_LATENT),
        case("minicpm3_short", "longrope's short factors, nothing stretched; keys as published",
             minicpm3(**without(attention(4, 24, 32, 16, 8, 0), "v_head_dim"), rope_scaling=longrope(32768)),
             **SMALL_LATENT),
        case("minicpm3_stretched", "longrope's short factors, context within the original window, maximum past it",
             minicpm3(**attention(4, 24, 32, 16, 8, 20), rope_scaling=longrope(64), max_position_embeddings=4096,
                      rope_theta=10000.0, tie_word_embeddings=True), **SMALL_LATENT),
        case("minicpm3_long", "longrope's long factors, context past the original window",
             minicpm3(**attention(3, 24, 40, 16, 8, 12), rope_scaling=longrope(16), max_position_embeddings=256,
                      rope_theta=10000.0, tie_word_embeddings=True), **SMALL_LATENT),
        case("glm4_moe_lite", "20 heads; rope_parameters; mlp_layer_types; 2 R below N + V", glm(), **SMALL_LATENT),
        case("fp8", "E4M3 in [128, 128] blocks, partial at the edges; heads that straddle blocks; subnormals",
             v3(**fp8_dims, **experts(4, 2, 1, 2, 1, 2.5), intermediate_size=48, quantization_config=fp8(),
                rope_scaling=yarn(40, 1.0, 1.0)), q=2.2),
        case("fp8_ue8m0", "the same with scales that are powers of two; every layer has experts",
             v3(**fp8_dims, **experts(4, 2, 1, 2, 1, 2.5, first_dense=0), num_hidden_layers=1,
                quantization_config=fp8(scale_fmt="ue8m0"), rope_scaling=yarn(40, 1.0, 1.0)), q=2.2),
    ]
