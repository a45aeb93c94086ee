#!/usr/bin/env python3
"""Makes a tiny random model of a family, a random adapter of it, and what transformers and PEFT answer with them.

usage: make_tiny_model.py NAME DATA_DIR
Needs torch, transformers and peft as ./dev peft installs them. Writes DATA_DIR/models/NAME, DATA_DIR/lora/NAME-lora-all, and replaces
NAME's lines of DATA_DIR/goldens/tiny.jsonl. The tokenizer is that of models/tiny-llama3. All is computed in float32 on one weight file.

tiny-gpt-oss has its experts twice: as bfloat16 in model-experts.safetensors, and the same numbers as MXFP4 in model-mxfp4.safetensors,
which config.mxfp4.json and model.safetensors.index.mxfp4.json belong to.
"""

import copy
import json
import pathlib
import shutil
import sys
import warnings
import zlib

import peft
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
torch.set_num_threads(1)  # matrices are too small for more

STEPS = 32
VOCABULARY = 4096

# Prompts reach beyond longrope's first positions at once: transformers changes the factors there, and an engine that serves longer
# sequences has the long ones from the start.
PHI3 = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, original_max_position_embeddings=16, partial_rotary_factor=0.75, sliding_window=24,
    rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0], "long_factor": [1.0, 1.5, 2.2, 4.0, 9.0, 20.0]},
    rope_theta=10000.0, rms_norm_eps=1e-5, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# Of longrope the short factors, which transformers takes for any length, and which an engine takes where it serves no more positions
# than the model was first trained on.
PHIMOE = dict(
    hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, original_max_position_embeddings=512, sliding_window=24, attention_bias=True, lm_head_bias=True,
    rope_scaling={"type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0, 2.5, 3.0], "long_factor": [4.0] * 8,
                  "short_mscale": 1.25, "long_mscale": 1.25, "original_max_position_embeddings": 512},
    rope_theta=10000.0, rms_norm_eps=1e-5, num_local_experts=8, num_experts_per_tok=2, router_jitter_noise=0.01, input_jitter_noise=0.01,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# A limit that gates and ups of random weights reach.
GPT_OSS = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    vocab_size=VOCABULARY, max_position_embeddings=512, sliding_window=24, layer_types=["sliding_attention", "full_attention"],
    rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                  "original_max_position_embeddings": 64},
    rope_theta=10000.0, rms_norm_eps=1e-5, num_local_experts=6, num_experts_per_tok=2, swiglu_limit=1.25, attention_bias=True,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

OLMOE = dict(
    hidden_size=64, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5, attention_bias=False, clip_qkv=None,
    num_experts=8, num_experts_per_tok=3, norm_topk_prob=False, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988,
    eos_token_id=3989)

# No tie_word_embeddings: files of the family leave it out.
SMOLLM3 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=5000.0, rms_norm_eps=1e-6, no_rope_layer_interval=4, use_sliding_window=False,
    attention_bias=False, mlp_bias=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

OLMO3 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, sliding_window=24, rope_theta=500000.0,
    rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.25,
                  "original_max_position_embeddings": 64},
    rms_norm_eps=1e-6, attention_bias=False, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

GRANITE = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5, attention_bias=False, mlp_bias=False,
    embedding_multiplier=6.0, attention_multiplier=0.25, residual_multiplier=0.4, logits_scaling=0.5, tie_word_embeddings=True,
    pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# Queries grow from the 16th position on.
MINISTRAL3 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY,
    max_position_embeddings=512, sliding_window=None,
    rope_parameters={"rope_type": "yarn", "type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "original_max_position_embeddings": 16,
                     "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5},
    rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# Positions enough that queries grow, and groups of experts.
MISTRAL4 = dict(
    hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
    n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=1.5, kv_lora_rank=32,
    q_lora_rank=48, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, first_k_dense_replace=1, norm_topk_prob=True,
    vocab_size=VOCABULARY, max_position_embeddings=512,
    rope_parameters={"rope_type": "yarn", "type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16,
                     "max_position_embeddings": 512, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
                     "llama_4_scaling_beta": 0.5, "partial_rotary_factor": 0.5},
    rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# As many positions as the indexer chooses tokens.
DEEPSEEK_V32 = dict(
    hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
    n_shared_experts=1, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, routed_scaling_factor=1.5, kv_lora_rank=32,
    q_lora_rank=48, qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32, first_k_dense_replace=1, norm_topk_prob=True,
    index_topk=512, index_head_dim=32, index_n_heads=2, vocab_size=VOCABULARY, max_position_embeddings=512,
    rope_theta=10000.0, rope_scaling={"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64, "beta_fast": 32.0,
                                      "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

GLM4 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, partial_rotary_factor=0.5, rms_norm_eps=1e-5, attention_bias=True,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

EXAONE4 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY,
    max_position_embeddings=512, sliding_window=24, sliding_window_pattern=4, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

HUNYUAN = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0,
    rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.0},
    rms_norm_eps=1e-5, attention_bias=False, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# As the family's files, with lists of what is the same in each layer.
HUNYUAN_MOE = dict(
    HUNYUAN, hidden_size=64, intermediate_size=32, head_dim=32, attention_head_dim=32, num_experts=8, moe_topk=[3, 3],
    moe_intermediate_size=[32, 32], num_shared_expert=[1, 1], use_mixed_mlp_moe=True, use_qk_norm=True, use_cla=False, norm_topk_prob=True)

# No tie_word_embeddings: files of the family leave it out.
COHERE2 = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, sliding_window=24, sliding_window_pattern=4, rope_theta=10000.0, rope_scaling=None, layer_norm_eps=1e-5,
    logit_scale=0.5, attention_bias=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# No tie_word_embeddings here either; a weight for each head's norm.
COHERE = dict(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, layer_norm_eps=1e-5, logit_scale=0.5, attention_bias=False,
    use_qk_norm=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

GLM4_MOE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    vocab_size=VOCABULARY, max_position_embeddings=512, partial_rotary_factor=0.5, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5,
    attention_bias=True, use_qk_norm=True, moe_intermediate_size=32, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=2,
    first_k_dense_replace=1, n_group=4, topk_group=2, norm_topk_prob=True, routed_scaling_factor=1.5, num_nextn_predict_layers=1,
    tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

QWEN2_MOE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-6, use_sliding_window=False, qkv_bias=True,
    moe_intermediate_size=32, shared_expert_intermediate_size=64, num_experts=8, num_experts_per_tok=3, norm_topk_prob=False,
    decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

GRANITE_MOE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5, attention_bias=False, embedding_multiplier=12.0,
    attention_multiplier=0.125, residual_multiplier=0.22, logits_scaling=0.25, num_local_experts=8, num_experts_per_tok=3,
    shared_intermediate_size=64, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# As its makers' files have it: the layers' old names, two groups of B and C; and a mixture, with rotation and with biases.
GRANITE_HYBRID = dict(
    hidden_size=32, intermediate_size=64, shared_intermediate_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    vocab_size=VOCABULARY, max_position_embeddings=512, position_embedding_type="nope", rope_theta=10000.0, rope_scaling=None,
    rms_norm_eps=1e-5, attention_bias=False, embedding_multiplier=6.0, attention_multiplier=0.25, residual_multiplier=0.4,
    logits_scaling=0.5, layer_types=["mamba", "mamba", "attention", "mamba"], mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2,
    mamba_d_state=24, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=256, mamba_conv_bias=True, mamba_proj_bias=False,
    num_local_experts=0, num_experts_per_tok=0, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)
GRANITE_HYBRID_MOE = dict(
    GRANITE_HYBRID, hidden_size=64, intermediate_size=32, shared_intermediate_size=48, position_embedding_type="rope", mamba_d_head=16,
    mamba_n_groups=1, mamba_d_state=40, mamba_d_conv=3, mamba_proj_bias=True, num_local_experts=8, num_experts_per_tok=3,
    tie_word_embeddings=False)

ERNIE_MOE = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5, use_bias=False, moe_num_experts=8, moe_k=3,
    moe_intermediate_size=32, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1, moe_layer_interval=1,
    tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

MINIMAX_M2 = dict(
    hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=VOCABULARY,
    max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rotary_dim=16, rms_norm_eps=1e-6, num_local_experts=8,
    num_experts_per_tok=3, tie_word_embeddings=False, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

# Without chunks and without temperature: texts here are shorter than either.
LLAMA4 = dict(
    hidden_size=64, intermediate_size=96, intermediate_size_mlp=160, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
    head_dim=32, vocab_size=VOCABULARY, max_position_embeddings=512, rope_theta=10000.0, rope_scaling=None, rms_norm_eps=1e-5,
    attention_bias=False, num_local_experts=6, num_experts_per_tok=2, interleave_moe_layer_step=2, no_rope_layer_interval=4, use_qk_norm=True,
    attention_chunk_size=8192, attn_temperature_tuning=True, floor_scale=8192, attn_scale=0.1, tie_word_embeddings=False, pad_token_id=0,
    bos_token_id=3988, eos_token_id=3989)

# Three of four layers keep a state, as in the real ones; heads of keys and of values differ in number and in size.
DELTA_NET = dict(linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=40, linear_num_key_heads=2, linear_num_value_heads=4,
                 layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"])
QWEN3_5 = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
    vocab_size=VOCABULARY, max_position_embeddings=512, **DELTA_NET,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_interleaved": True,
                     "mrope_section": [2, 1, 1]},
    rms_norm_eps=1e-6, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

MIXTURE = dict(moe_intermediate_size=32, shared_expert_intermediate_size=48, num_experts=8, num_experts_per_tok=3)
QWEN3_5_MOE = dict({key: value for key, value in QWEN3_5.items() if key != "intermediate_size"}, **MIXTURE)
QWEN3_NEXT = dict(
    {key: value for key, value in QWEN3_5.items() if key != "rope_parameters"}, **MIXTURE, norm_topk_prob=True, decoder_sparse_step=1,
    mlp_only_layers=[1], rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.25)

# Of each kind of layer two have keys of their own, or one does, so that a layer that shares could look at another's.
GEMMA4_E = dict(
    hidden_activation="gelu_pytorch_tanh", hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, global_head_dim=32, attention_k_eq_v=False, vocab_size=VOCABULARY,
    vocab_size_per_layer_input=VOCABULARY, hidden_size_per_layer_input=32, num_kv_shared_layers=3, use_double_wide_mlp=True,
    enable_moe_block=False, max_position_embeddings=512, sliding_window=24,
    layer_types=["sliding_attention", "full_attention"] * 3, final_logit_softcapping=8.0,
    rope_parameters={"full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000.0},
                     "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
    rms_norm_eps=1e-6, attention_bias=False, tie_word_embeddings=True, pad_token_id=0, bos_token_id=3988, eos_token_id=3989)

GEMMA4_MOE = dict(
    GEMMA4_E, num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, attention_k_eq_v=True,
    num_global_key_value_heads=1, hidden_size_per_layer_input=0, num_kv_shared_layers=0, use_double_wide_mlp=False,
    enable_moe_block=True, num_experts=6, top_k_experts=3, moe_intermediate_size=64, final_logit_softcapping=None)

FAMILIES = {
    "tiny-phi3": dict(model=transformers.Phi3ForCausalLM, config=transformers.Phi3Config, fields=PHI3, prompts=(20, 33, 40, 150),
                      targets=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
    "tiny-phimoe": dict(model=transformers.PhimoeForCausalLM, config=transformers.PhimoeConfig, fields=PHIMOE, prompts=(1, 9, 40, 150),
                        targets=["q_proj", "k_proj", "v_proj", "o_proj"],
                        parameters=["mlp.router.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"],
                        architecture="PhiMoEForCausalLM", near_experts=True),
    "tiny-gpt-oss": dict(model=transformers.GptOssForCausalLM, config=transformers.GptOssConfig, fields=GPT_OSS, prompts=(1, 9, 40, 150),
                         targets=["q_proj", "k_proj", "v_proj", "o_proj"],
                         parameters=["mlp.router.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"], mxfp4_experts=True),
    "tiny-olmoe": dict(model=transformers.OlmoeForCausalLM, config=transformers.OlmoeConfig, fields=OLMOE, prompts=(1, 9, 40, 150),
                       targets="all-linear"),
    "tiny-smollm3": dict(model=transformers.SmolLM3ForCausalLM, config=transformers.SmolLM3Config, fields=SMOLLM3, prompts=(1, 9, 40, 150),
                         targets="all-linear"),
    "tiny-olmo3": dict(model=transformers.Olmo3ForCausalLM, config=transformers.Olmo3Config, fields=OLMO3, prompts=(1, 9, 40, 150),
                       targets="all-linear"),
    "tiny-ministral3": dict(model=transformers.Ministral3ForCausalLM, config=transformers.Ministral3Config, fields=MINISTRAL3,
                            prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-mistral4": dict(model=transformers.Mistral4ForCausalLM, config=transformers.Mistral4Config, fields=MISTRAL4,
                          prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-deepseek-v32": dict(model=transformers.DeepseekV32ForCausalLM, config=transformers.DeepseekV32Config, fields=DEEPSEEK_V32,
                              prompts=(1, 9, 40, 150), targets="all-linear", excluded=r".*\.indexer\..*"),
    "tiny-glm4": dict(model=transformers.Glm4ForCausalLM, config=transformers.Glm4Config, fields=GLM4, prompts=(1, 9, 40, 150),
                      targets="all-linear"),
    "tiny-exaone4": dict(model=transformers.Exaone4ForCausalLM, config=transformers.Exaone4Config, fields=EXAONE4, prompts=(1, 9, 40, 150),
                         targets="all-linear"),
    "tiny-hunyuan": dict(model=transformers.HunYuanDenseV1ForCausalLM, config=transformers.HunYuanDenseV1Config, fields=HUNYUAN,
                         prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-hunyuan-moe": dict(model=transformers.HunYuanMoEV1ForCausalLM, config=transformers.HunYuanMoEV1Config, fields=HUNYUAN_MOE,
                             prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-cohere": dict(model=transformers.CohereForCausalLM, config=transformers.CohereConfig, fields=COHERE, prompts=(1, 9, 40, 150),
                        targets="all-linear"),
    "tiny-cohere2": dict(model=transformers.Cohere2ForCausalLM, config=transformers.Cohere2Config, fields=COHERE2, prompts=(1, 9, 40, 150),
                         targets="all-linear"),
    "tiny-granite": dict(model=transformers.GraniteForCausalLM, config=transformers.GraniteConfig, fields=GRANITE, prompts=(1, 9, 40, 150),
                         targets="all-linear"),
    "tiny-glm4moe": dict(model=transformers.Glm4MoeForCausalLM, config=transformers.Glm4MoeConfig, fields=GLM4_MOE, prompts=(1, 9, 40, 150),
                         targets="all-linear"),
    "tiny-qwen2moe": dict(model=transformers.Qwen2MoeForCausalLM, config=transformers.Qwen2MoeConfig, fields=QWEN2_MOE, prompts=(1, 9, 40, 150),
                          targets="all-linear"),
    "tiny-granitemoe": dict(model=transformers.GraniteMoeSharedForCausalLM, config=transformers.GraniteMoeSharedConfig, fields=GRANITE_MOE,
                            prompts=(1, 9, 40, 150), targets="all-linear",
                            parameters=["block_sparse_moe.router.weight", "block_sparse_moe.experts.gate_up_proj", "block_sparse_moe.experts.down_proj"]),
    "tiny-granite-h": dict(model=transformers.GraniteMoeHybridForCausalLM, config=transformers.GraniteMoeHybridConfig, fields=GRANITE_HYBRID,
                           prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-granite-h-moe": dict(model=transformers.GraniteMoeHybridForCausalLM, config=transformers.GraniteMoeHybridConfig,
                               fields=GRANITE_HYBRID_MOE, prompts=(1, 9, 40, 150), targets="all-linear",
                               parameters=["block_sparse_moe.router.weight", "block_sparse_moe.experts.gate_up_proj",
                                           "block_sparse_moe.experts.down_proj"]),
    "tiny-llama4": dict(model=transformers.Llama4ForCausalLM, config=transformers.Llama4TextConfig, fields=LLAMA4, prompts=(1, 9, 40, 150),
                        targets=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]),
    "tiny-ernie4_5moe": dict(model=transformers.Ernie4_5_MoeForCausalLM, config=transformers.Ernie4_5_MoeConfig, fields=ERNIE_MOE,
                             prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-minimax-m2": dict(model=transformers.MiniMaxM2ForCausalLM, config=transformers.MiniMaxM2Config, fields=MINIMAX_M2,
                            prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-qwen3-5": dict(model=transformers.Qwen3_5ForCausalLM, config=transformers.Qwen3_5TextConfig, fields=QWEN3_5,
                         prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-qwen3-5-moe": dict(model=transformers.Qwen3_5MoeForCausalLM, config=transformers.Qwen3_5MoeTextConfig, fields=QWEN3_5_MOE,
                             prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-qwen3-next": dict(model=transformers.Qwen3NextForCausalLM, config=transformers.Qwen3NextConfig, fields=QWEN3_NEXT,
                            prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-gemma4-e": dict(model=transformers.Gemma4ForCausalLM, config=transformers.Gemma4TextConfig, fields=GEMMA4_E,
                          prompts=(1, 9, 40, 150), targets="all-linear"),
    "tiny-gemma4-moe": dict(model=transformers.Gemma4ForCausalLM, config=transformers.Gemma4TextConfig, fields=GEMMA4_MOE,
                            prompts=(1, 9, 40, 150), targets=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
                                                              "down_proj", "router.proj"],
                            parameters=["experts.gate_up_proj", "experts.down_proj"]),
}

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
MXFP4_GROUP = 32


# The nearest MXFP4 of each row's groups: codes [..., k], exponents [..., k / 32]; then the numbers they stand for.
def mxfp4_codes(rows):
    groups = rows.float().unflatten(-1, (-1, MXFP4_GROUP))
    exponents = groups.abs().amax(-1).log2().floor() - 2
    scaled = groups * 2 ** -exponents[..., None]
    codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1) + 8 * (scaled < 0)
    return codes.flatten(-2).to(torch.uint8), exponents


def mxfp4_numbers(codes, exponents):
    numbers = E2M1[(codes % 8).long()] * torch.where(codes >= 8, -1.0, 1.0)
    return (numbers.unflatten(-1, (-1, MXFP4_GROUP)) * 2 ** exponents[..., None]).flatten(-2)


def make_model(family):
    model = family["model"](family["config"](**copy.deepcopy(family["fields"]), attn_implementation="eager")).float().eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("e_score_correction_bias"):
                weight.copy_(0.2 * torch.randn_like(weight))
            elif "norm" in name and name.endswith("bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
            elif name.endswith("mlp.router.weight") and family.get("near_experts"):  # so that many a mixer's share is of several
                weight.copy_(1.5 * weight.shape[-1] ** -0.5 * (torch.randn_like(weight[:1]) + 0.1 * torch.randn_like(weight)))
            elif "norm" in name:
                weight.copy_(1 + 0.1 * torch.randn_like(weight))
            elif name.endswith("A_log"):
                weight.copy_(torch.randn_like(weight) - 2)  # some heads remember a hundred tokens
            elif name.endswith("router.scale"):
                weight.copy_(8 + 2 * torch.randn_like(weight))  # so that choices differ by more than rounding does
            elif name.endswith("per_expert_scale"):
                weight.copy_(1 + 0.3 * torch.randn_like(weight))
            else:
                weight.copy_(torch.randn_like(weight) * (0.15 if "embed" in name else 1.5 * weight.shape[-1] ** -0.5))
            if family.get("mxfp4_experts") and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                weight.copy_(mxfp4_numbers(*mxfp4_codes(weight.mT)).mT)
            weight.copy_(weight.bfloat16())
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_((0.2 * torch.randn_like(buffer)).bfloat16())
        for name, scalar in model.named_buffers():
            if name.endswith("layer_scalar"):
                scalar.copy_((0.7 + 0.5 * torch.rand_like(scalar)).bfloat16())
    return model


# model.safetensors in two files, the experts' matrices in one of their own, and this one as MXFP4 beside it.
def split_experts(folder, config):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    dense = {name: weight for name, weight in weights.items() if not name.endswith(("experts.gate_up_proj", "experts.down_proj"))}
    experts = {name: weight for name, weight in weights.items() if name not in dense}
    packed = {}
    for name, weight in experts.items():
        codes, exponents = mxfp4_codes(weight.mT)
        blocks = (codes[..., 0::2] | codes[..., 1::2] << 4).unflatten(-1, (-1, MXFP4_GROUP // 2)).contiguous()
        scales = (exponents + 127).to(torch.uint8)
        assert torch.equal(convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16), weight)
        packed.update({name + "_blocks": blocks, name + "_scales": scales})
    for file, own, index in (("model-experts.safetensors", experts, "model.safetensors.index.json"),
                             ("model-mxfp4.safetensors", packed, "model.safetensors.index.mxfp4.json")):
        save_file({name: weight.contiguous() for name, weight in own.items()}, folder / file)
        places = {**dict.fromkeys(dense, "model-dense.safetensors"), **dict.fromkeys(own, file)}
        (folder / index).write_text(json.dumps(dict(metadata={}, weight_map=dict(sorted(places.items()))), indent=1) + "\n")
    save_file(dense, folder / "model-dense.safetensors")
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config = dict(config, quantization_config=dict(quant_method="mxfp4", modules_to_not_convert=skipped))
    (folder / "config.mxfp4.json").write_text(json.dumps(config, indent=1) + "\n")


def save_model(model, family, folder, data):
    model.bfloat16().save_pretrained(folder)  # which rounds buffers too: this model computes nothing any more
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(data / "models/tiny-llama3" / file, folder / file)
    (folder / "config.json").rename(folder / "config.transformers5.json")
    # As files of the family have it.
    config = dict(architectures=[family.get("architecture", family["model"].__name__)], model_type=model.config.model_type, hidden_act="silu",
                  torch_dtype="bfloat16", **family["fields"])
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if family.get("mxfp4_experts"):
        split_experts(folder, config)
    for file in folder.iterdir():
        file.chmod(0o644)


def add_adapter(model, family, folder):
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=4, lora_alpha=8, target_modules=family["targets"], target_parameters=family.get("parameters"),
        exclude_modules=family.get("excluded"), task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                weight.copy_((torch.randn_like(weight) * 0.1).bfloat16())
    adapted.peft_config["default"].base_model_name_or_path = folder.name.removesuffix("-lora-all")
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    for file in folder.iterdir():
        file.chmod(0o644)
    return adapted


@torch.no_grad()
def golden(model, prompt):
    ids, first, greedy, gaps = list(prompt), None, [], []
    for _ in range(STEPS):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1].float()
        first = logits if first is None else first
        top = logits.topk(2)
        greedy.append(top.indices[0].item())
        gaps.append(round((top.values[0] - top.values[1]).item(), 5))
        ids.append(greedy[-1])
    top = first.topk(10)
    return dict(prompt_ids=list(prompt), greedy_ids=greedy,
                top10=dict(ids=top.indices.tolist(), values=[round(v, 5) for v in top.values.tolist()]),
                logsumexp=round(first.logsumexp(0).item(), 5), gaps=gaps)


def main(name, data):
    family = FAMILIES[name]
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    save_model(make_model(family), family, data / "models" / name, data)
    model = family["model"].from_pretrained(data / "models" / name, dtype=torch.float32, attn_implementation="eager").eval()
    rnd = torch.Generator().manual_seed(seed)
    prompts = [torch.randint(0, 3900, (length,), generator=rnd).tolist() for length in family["prompts"]]
    lines = []
    for adapter in ("base", name + "-lora-all"):
        if adapter != "base":
            model = add_adapter(model, family, data / "lora" / adapter)
        for i, prompt in enumerate(prompts):
            lines.append(json.dumps(dict(model=name, adapter=adapter, prompt_id=f"made{i}", **golden(model, prompt))))
    file = data / "goldens/tiny.jsonl"
    kept = [line for line in file.read_text().splitlines() if json.loads(line)["model"] != name]
    file.write_text("\n".join(kept + lines) + "\n")


main(sys.argv[1], pathlib.Path(sys.argv[2]))
