#!/usr/bin/env python3
"""Writes models with the PyPI package `gguf` (its names of tensors and keys, its file) by the rules of llama.cpp's converter, and holds
what is read of them to the folders they came from: the likelihood of a text.

usage: against_gguf.py CHORAL MODEL_DIR...
Needs gguf and numpy (run with gguf 0.19). Without them, here and in the Python that CHORAL_PEFT_PYTHON names, it exits with 77: skipped.
"""

import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

try:
    import gguf
    import numpy
    from stored_tensors import stored
except ModuleNotFoundError as missing:
    import other_python
    other_python.go_on_elsewhere(missing)

ARCHITECTURES = {"phi3": gguf.MODEL_ARCH.PHI3, "phimoe": gguf.MODEL_ARCH.PHIMOE, "deepseek_v2": gguf.MODEL_ARCH.DEEPSEEK2, "deepseek_v3": gguf.MODEL_ARCH.DEEPSEEK2,
                 "gpt_oss": gguf.MODEL_ARCH.GPT_OSS, "olmoe": gguf.MODEL_ARCH.OLMOE, "smollm3": gguf.MODEL_ARCH.SMOLLM3,
                 "olmo3": gguf.MODEL_ARCH.OLMO2, "granite": gguf.MODEL_ARCH.GRANITE, "granitemoehybrid": gguf.MODEL_ARCH.GRANITE_HYBRID, "ministral3": gguf.MODEL_ARCH.MISTRAL3,
                 "glm4": gguf.MODEL_ARCH.GLM4, "exaone4": gguf.MODEL_ARCH.EXAONE4, "hunyuan_v1_dense": gguf.MODEL_ARCH.HUNYUAN_DENSE,
                 "hunyuan_v1_moe": gguf.MODEL_ARCH.HUNYUAN_MOE,
                 "cohere": gguf.MODEL_ARCH.COMMAND_R, "cohere2": gguf.MODEL_ARCH.COHERE2, "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
                 "glm4_moe": gguf.MODEL_ARCH.GLM4_MOE, "ernie4_5_moe": gguf.MODEL_ARCH.ERNIE4_5_MOE, "minimax_m2": gguf.MODEL_ARCH.MINIMAXM2,
                 "gemma4_text": gguf.MODEL_ARCH.GEMMA4, "mistral4": gguf.MODEL_ARCH.MISTRAL4}
NEIGHBOURS_TURN = ("smollm3", "granite", "granitemoehybrid", "ministral3")  # in llama.cpp, where they are halves here
FLOAT_MATRICES = ("ssm_a", "ssm_d", "ssm_conv1d", "_norm")
SWIGLU_LIMIT = 7.0  # of gpt-oss in every reader of GGUF


def add_gemma4(writer, config):
    layers, shared, full = config["num_hidden_layers"], config["num_kv_shared_layers"], config["global_head_dim"]
    windows = [kind == "sliding_attention" for kind in config["layer_types"]]
    rope, kv_heads = config["rope_parameters"], config["num_key_value_heads"]
    writer.add_block_count(layers)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    wide = 2 if config["use_double_wide_mlp"] else 1
    writer.add_feed_forward_length([config["intermediate_size"] * (wide if i >= layers - shared else 1) for i in range(layers)])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv([kv_heads if window else config.get("num_global_key_value_heads", kv_heads) for window in windows])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(config["sliding_window"])
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(shared)
    writer.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    for add, size in ((writer.add_key_length, full), (writer.add_value_length, full), (writer.add_rope_dimension_count, full),
                      (writer.add_key_length_swa, config["head_dim"]), (writer.add_value_length_swa, config["head_dim"]),
                      (writer.add_rope_dimension_count_swa, config["head_dim"])):
        add(size)
    if config["final_logit_softcapping"]:
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["enable_moe_block"]:
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["top_k_experts"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    turned = int(full * rope["full_attention"]["partial_rotary_factor"] / 2)
    writer.add_tensor("rope_freqs.weight", numpy.array([1.0] * turned + [1e30] * (full // 2 - turned), numpy.float32))


def add_mamba2(writer, config):
    writer.add_ssm_conv_kernel(config["mamba_d_conv"])
    writer.add_ssm_state_size(config["mamba_d_state"])
    writer.add_ssm_group_count(config["mamba_n_groups"])
    writer.add_ssm_inner_size(config["mamba_expand"] * config["hidden_size"])
    writer.add_ssm_time_step_rank(config["mamba_n_heads"])
    writer.add_rope_scaling_finetuned(config["position_embedding_type"] == "rope")


def add_metadata(writer, config):
    if config["model_type"] == "gemma4_text":
        return add_gemma4(writer, config)
    heads, rope = config["num_attention_heads"], config.get("rope_scaling") or config.get("rope_parameters")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    if "layer_norm_eps" in config:
        writer.add_layer_norm_eps(config["layer_norm_eps"])
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    theta = config.get("rope_theta") or rope["rope_theta"]
    if config["model_type"].startswith("hunyuan_v1"):
        theta *= rope["alpha"] ** (config["head_dim"] / (config["head_dim"] - 2))
        rope = None
    writer.add_rope_freq_base(theta)
    writer.add_vocab_size(config["vocab_size"])
    if "kv_lora_rank" in config:
        add_latent_attention(writer, config)
    else:
        head_dim = config.get("head_dim", config["hidden_size"] // heads)
        kv_heads = config["num_key_value_heads"]
        if config["model_type"] == "granitemoehybrid":
            kv_heads = [kv_heads if kind == "attention" else 0 for kind in config["layer_types"]]
            add_mamba2(writer, config)
        writer.add_head_count_kv(kv_heads)
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
        writer.add_rope_dimension_count(config.get("rotary_dim", int(head_dim * config.get("partial_rotary_factor", 1))))
        if config.get("sliding_window"):
            writer.add_sliding_window(config["sliding_window"])
        if config["model_type"] in ("olmo3", "exaone4", "cohere2"):
            writer.add_sliding_window_pattern([(i + 1) % 4 != 0 for i in range(config["num_hidden_layers"])])
    if "n_routed_experts" in config:
        add_experts_of_groups(writer, config)
    elif config["model_type"] == "ernie4_5_moe":
        writer.add_expert_count(config["moe_num_experts"])
        writer.add_expert_used_count(config["moe_k"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_count(config["moe_num_shared_experts"])
        writer.add_leading_dense_block_count(config["moe_layer_start_index"])
        writer.add_interleave_moe_layer_step(config["moe_layer_interval"])
    elif config["model_type"] == "hunyuan_v1_moe":
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_shared_feed_forward_length(config["intermediate_size"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"][0])
        writer.add_expert_used_count(config["moe_topk"][0])
        writer.add_expert_shared_count(config["num_shared_expert"][0])
    elif "num_experts_per_tok" in config:
        writer.add_expert_count(config["num_local_experts" if "num_local_experts" in config else "num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
    if config["model_type"] == "qwen2_moe":
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    if config["model_type"] == "minimax_m2":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    for name, add in (("attention_multiplier", writer.add_attention_scale), ("embedding_multiplier", writer.add_embedding_scale),
                      ("residual_multiplier", writer.add_residual_scale), ("logits_scaling", writer.add_logit_scale),
                      ("logit_scale", writer.add_logit_scale)):
        if name in config:
            add(config[name])
    if config["model_type"] == "gpt_oss":
        writer.add_expert_feed_forward_length(config["intermediate_size"])
    if rope is not None:
        add_rope_scaling(writer, config, rope)


def add_rope_scaling(writer, config, rope):
    kind, original = rope.get("rope_type", rope.get("type")), rope["original_max_position_embeddings"]
    writer.add_rope_scaling_orig_ctx_len(original)
    if kind == "longrope":
        stretched = config["max_position_embeddings"] / original
        writer.add_rope_scaling_type(gguf.RopeScalingType.LONGROPE)
        usual = math.sqrt(1 + math.log(stretched) / math.log(original))  # which is all that is ever written
        writer.add_rope_scaling_attn_factors(rope.get("long_mscale", usual))
        for length, tensor in ("long", gguf.MODEL_TENSOR.ROPE_FACTORS_LONG), ("short", gguf.MODEL_TENSOR.ROPE_FACTORS_SHORT):
            writer.add_tensor(gguf.TENSOR_NAMES[tensor] + ".weight", numpy.array(rope[f"{length}_factor"], numpy.float32))
    else:
        assert kind == "yarn", kind
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        if "attention_factor" in rope:
            writer.add_rope_scaling_yarn_attn_factor(rope["attention_factor"])
        if "llama_4_scaling_beta" in rope:
            writer.add_attn_temperature_scale(rope["llama_4_scaling_beta"])
        if config["model_type"] == "ministral3":
            writer.add_rope_scaling_yarn_log_mul(rope["mscale_all_dim"])
        elif "mscale_all_dim" in rope:
            writer.add_rope_scaling_yarn_log_mul(0.1 * rope["mscale_all_dim"])


def add_latent_attention(writer, config):
    rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
    writer.add_head_count_kv(1)
    if config["q_lora_rank"] is not None:
        writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(rank)
    writer.add_key_length(rank + rope)
    writer.add_value_length(rank)
    writer.add_key_length_mla(config["qk_nope_head_dim"] + rope)
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(rope)


def add_experts_of_groups(writer, config):
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    sigmoid = config["model_type"] not in ("deepseek_v2", "mistral4")
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID if sigmoid else gguf.ExpertGatingFuncType.SOFTMAX)


def with_neighbours(name, values, config):
    """Rows of q and k with what turns together side by side."""
    if config["model_type"] not in NEIGHBOURS_TURN or ".self_attn." not in name or not name.split(".")[-2] in ("q_proj", "k_proj"):
        return values
    heads = config["num_attention_heads" if ".q_proj" in name else "num_key_value_heads"]
    rows = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return numpy.ascontiguousarray(rows.swapaxes(1, 2).reshape(values.shape))


def of_mamba2(name, values, config):
    """A tensor of a Mamba-2 layer, by the name whose last part is its kind."""
    if name.endswith("A_log"):
        return name + ".", -numpy.exp(values)[:, None]
    if name.endswith(".D"):
        return name + ".", values[:, None]
    if name.endswith("dt_bias"):
        return name.replace("dt_bias", "dt_proj.bias"), values
    if name.endswith("conv1d.weight"):
        return name, numpy.squeeze(values, 1)
    if name.endswith("norm.weight"):
        return name, values.reshape(config["mamba_n_groups"], -1)
    return name, values


def in_parts(tensors, config):
    """The tensors as the converter hands them to the writer: experts stacked, merged ones parted, kv_b by heads."""
    experts = {}
    for name, values in tensors.items():
        if name.endswith("kv_b_proj.weight"):
            keys, heads = config["qk_nope_head_dim"], config["num_attention_heads"]
            kv = values.reshape(heads, keys + config["v_head_dim"], values.shape[-1])
            yield name.replace("kv_b", "k_b"), numpy.ascontiguousarray(kv[:, :keys].swapaxes(1, 2))
            yield name.replace("kv_b", "v_b"), numpy.ascontiguousarray(kv[:, keys:])
        elif ".mamba." in name:
            yield of_mamba2(name, values, config)
        elif name.endswith("shared_mlp.input_linear.weight"):
            for part, half in zip(("gate", "up"), numpy.split(values, 2)):
                yield name.replace("shared_mlp.input_linear", f"mlp.{part}_proj"), numpy.ascontiguousarray(half)
        elif name.endswith("shared_mlp.output_linear.weight"):
            yield name.replace("shared_mlp.output_linear", "mlp.down_proj"), values
        elif config["model_type"] == "gemma4_text":
            if name.endswith("router.scale"):
                name = name.replace("router.scale", "router.proj.scale")
            elif name.endswith("per_expert_scale"):
                name = name.replace("router.per_expert_scale", "experts.down_proj.scale")
            elif not name.endswith(".weight"):
                name += ".weight"
            yield name, values
        elif config["model_type"] == "mistral4" and name.endswith((".experts.gate_up_proj", ".experts.down_proj")):
            yield name + ".weight", values  # gate and up in one tensor
        elif ".experts.gate_up_proj" in name:
            whole = values if name.endswith("_bias") else values.swapaxes(1, 2)
            kind = ".bias" if name.endswith("_bias") else ".weight"
            before = name[:name.index("gate_up_proj")]
            yield before + "gate_proj" + kind, numpy.ascontiguousarray(whole[:, 0::2])
            yield before + "up_proj" + kind, numpy.ascontiguousarray(whole[:, 1::2])
        elif name.endswith(".experts.down_proj"):
            yield name + ".weight", numpy.ascontiguousarray(values.swapaxes(1, 2))
        elif name.endswith(".experts.down_proj_bias"):
            yield name.replace("_bias", ".bias"), values
        elif ".experts." in name:
            before, after = name.split(".experts.")
            number, rest = after.split(".", 1)
            experts.setdefault(f"{before}.experts.{rest}", {})[int(number)] = values
        elif name.endswith("e_score_correction_bias"):
            yield name.replace("e_score_correction_bias", "e_score_correction.bias"), values.reshape(-1)
        else:
            yield name + (".weight" if name.endswith("sinks") else ""), values
    for name, by_number in experts.items():
        yield name, numpy.stack([by_number[number] for number in sorted(by_number)])


def write_gguf(path, folder, config, experts_type):
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    add_metadata(writer, config)
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    tensors = {name: with_neighbours(name, values, config) for name, values in stored(folder).items() if not name.endswith(("_blocks", "_scales"))}
    for name, values in in_parts(tensors, config):
        stem, kind = name.rsplit(".", 1)
        known = names.get_name(stem)
        assert known is not None, name
        if values.ndim == 1 or kind == "bias" or known.endswith(FLOAT_MATRICES):
            writer.add_tensor(f"{known}.{kind}".removesuffix("."), values)
        else:
            stored_type = experts_type if values.ndim == 3 and ".experts." in name else gguf.GGMLQuantizationType.BF16
            writer.add_tensor(f"{known}.{kind}", gguf.quants.quantize(values, stored_type), raw_dtype=stored_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def likelihood(choral, model, tokenizer, text):
    run = subprocess.run([choral, "eval", model, "--tokenizer", tokenizer, "--text", text, "--tokens", "300", "--ctx-size", "100", "--json", "-q"],
                         check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout)["nll"]


def check(choral, model, text, folder):
    config = json.loads((model / "config.json").read_text())
    files = folder / model.name
    shutil.copytree(model, files)
    if "swiglu_limit" in config:
        config["swiglu_limit"] = SWIGLU_LIMIT
        (files / "config.json").write_text(json.dumps(config))
    wanted = likelihood(choral, files, model, text)
    # The numbers of gpt-oss's experts are MXFP4's, so its blocks hold them.
    for kind, tolerance in (("BF16", 1e-6), ("MXFP4", 1e-4)) if config["model_type"] == "gpt_oss" else (("BF16", 1e-6),):
        path = folder / f"{model.name}-{kind}.gguf"
        write_gguf(path, model, config, gguf.GGMLQuantizationType[kind])
        got = likelihood(choral, path, model, text)
        print(f"{model.name}: nll {wanted} as a folder, {got} as GGUF of {kind}")
        assert abs(wanted - got) < tolerance


def main():
    choral, *models = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "text"
        text.write_text(pathlib.Path(__file__).read_text())
        for model in map(pathlib.Path, models):
            check(choral, model, text, pathlib.Path(folder))


main()
