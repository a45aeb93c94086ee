#include "golden/kinds.h"

#include <cmath>
#include <fstream>

namespace choral::golden {
namespace {

void all_linear(AdapterKind& kind, const WeightSet& base) {
  for (const auto& module : linear_modules(base)) kind.add_pair(module);
}

const Kind kKinds[] = {
    {"LoRA on q_proj, v_proj", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj"), k.add_pair(layer(i) + ".self_attn.v_proj");
     }},
    {"LoRA, target_modules \"all-linear\"", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = "all-linear";
       all_linear(k, base);
     }},
    {"LoRA, target_modules a regex", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = R"(.*\.mlp\.(gate|down)_proj)";
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".mlp.gate_proj"), k.add_pair(layer(i) + ".mlp.down_proj");
     }},
    {"LoRA on k_proj alone, up_proj alone", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"k_proj", "up_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.k_proj"), k.add_pair(layer(i) + ".mlp.up_proj");
     }},
    {"rsLoRA", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_rslora"] = true;
       k.config["target_modules"] = "all-linear";
       k.set_scale(k.config["lora_alpha"].get<double>() / std::sqrt(k.config["r"].get<double>()));
       all_linear(k, base);
     }},
    {"rank_pattern, alpha_pattern", "tiny-mistral",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"q_proj", "v_proj", "down_proj"};
       k.config["rank_pattern"] = {{"v_proj", 3}, {R"(layers\.1\.mlp\.down_proj)", 7}};
       k.config["alpha_pattern"] = {{"down_proj", 5}};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("q_proj")) k.add_pair(module);
         if (module.ends_with("v_proj")) k.add_pair(module, 3, 8.0 / 3);
         if (module.ends_with("layers.1.mlp.down_proj")) {
           k.add_pair(module, 7, 5.0 / 7);
         } else if (module.ends_with("down_proj")) {
           k.add_pair(module, 4, 5.0 / 4);
         }
       }
     }},
    {"layers_to_transform", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"o_proj", "gate_proj"};
       k.config["layers_to_transform"] = {1, 3};
       for (const int i : {1, 3}) k.add_pair(layer(i) + ".self_attn.o_proj"), k.add_pair(layer(i) + ".mlp.gate_proj");
     }},
    {"DoRA", "tiny-llama3",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = "all-linear";
       for (const auto& module : linear_modules(base)) k.add_dora(module);
     }},
    {"DoRA on a base with biases, q_proj only", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj"};
       for (int i = 0; i < 4; ++i) k.add_dora(layer(i) + ".self_attn.q_proj");
     }},
    {"lora_bias", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["lora_bias"] = true;
       k.config["target_modules"] = {"q_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) {
         for (const char* p : {".self_attn.q_proj", ".self_attn.v_proj"}) k.add_pair(layer(i) + p), k.add_lora_bias(layer(i) + p);
       }
     }},
    {"bias = \"all\"", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["bias"] = "all";
       k.config["target_modules"] = {"q_proj", "k_proj", "v_proj"};
       for (int i = 0; i < 4; ++i) {
         for (const char* p : {".self_attn.q_proj", ".self_attn.k_proj", ".self_attn.v_proj"}) {
           k.add_pair(layer(i) + p), k.replace_bias(layer(i) + p);
         }
       }
     }},
    {"embed_tokens", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens"};
       k.add_embedding_pair("model.embed_tokens");
     }},
    {"embed_tokens of a tied model", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens", "v_proj"};
       k.add_embedding_pair("model.embed_tokens");
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
     }},
    {"lm_head", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"lm_head"};
       k.add_head_pair("lm_head.weight");
     }},
    {"lm_head of a tied model", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"lm_head"};
       k.add_head_pair("model.embed_tokens.weight");
     }},
    {"modules_to_save: norms that are stored less one", "tiny-gemma2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"model.norm", "layers.2.post_feedforward_layernorm"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("model.norm.weight", 0.3f);
       k.replace(layer(2) + ".post_feedforward_layernorm.weight", 0.3f);
     }},
    {"LoRA on embed_tokens of scaled embeddings, tied head with a soft-cap", "tiny-gemma2",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"embed_tokens", "lm_head", "down_proj"};
       k.add_embedding_pair("model.embed_tokens");
       k.add_head_pair("model.embed_tokens.weight");
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("down_proj")) k.add_pair(module);
       }
     }},
    {"tokens of its own over scaled embeddings and a soft-cap, tied", "tiny-gemma2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       k.add_own_tokens(17);
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       for (const char* module : {"model.embed_tokens", "lm_head"}) k.save_layer(module, ".weight");
     }},
    {"LoRA on q_proj, o_proj with head norms and two ropes", "tiny-gemma3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj", "o_proj"};
       k.config["modules_to_save"] = {"layers.2.self_attn.q_norm"};
       for (int i = 0; i < 6; ++i) k.add_pair(layer(i) + ".self_attn.q_proj"), k.add_pair(layer(i) + ".self_attn.o_proj");
       k.replace(layer(2) + ".self_attn.q_norm.weight", 0.3f);
     }},
    {"DoRA on gate_proj before a GELU", "tiny-gemma3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"gate_proj"};
       for (int i = 0; i < 6; ++i) k.add_dora(layer(i) + ".mlp.gate_proj");
     }},
    {"LoRA on all of a gated delta net, its norm saved", "tiny-qwen3-5",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"};
       k.config["modules_to_save"] = {"layers.1.linear_attn.norm"};
       for (int i = 0; i < 3; ++i) {
         for (const char* name : {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"}) {
           k.add_pair(layer(i) + ".linear_attn." + name);
         }
       }
       k.replace(layer(1) + ".linear_attn.norm.weight", 0.3f);
     }},
    {"DoRA on a gated delta net, and on queries that come with gates", "tiny-qwen3-5",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"in_proj_qkv", "in_proj_a", "out_proj", "q_proj"};
       for (int i = 0; i < 3; ++i) {
         for (const char* name : {"in_proj_qkv", "in_proj_a", "out_proj"}) k.add_dora(layer(i) + ".linear_attn." + name);
       }
       k.add_dora(layer(3) + ".self_attn.q_proj");
     }},
    {"LoRA on a delta net whose heads come in turns, on a shared expert and its gate", "tiny-qwen3-next",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"in_proj_qkvz", "in_proj_ba", "shared_expert_gate", "shared_expert.up_proj"};
       for (int i = 0; i < 3; ++i) {
         for (const char* name : {"in_proj_qkvz", "in_proj_ba"}) k.add_pair(layer(i) + ".linear_attn." + name);
       }
       for (const int i : {0, 2, 3}) {  // layer 1 has an MLP
         for (const char* name : {"shared_expert_gate", "shared_expert.up_proj"}) k.add_pair(layer(i) + ".mlp." + name);
       }
     }},
    {"modules_to_save: a delta net's in_proj_ba and a shared expert's gate", "tiny-qwen3-next",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"out_proj"};
       k.config["modules_to_save"] = {"layers.0.linear_attn.in_proj_ba", "layers.2.mlp.shared_expert_gate"};
       for (int i = 0; i < 3; ++i) k.add_pair(layer(i) + ".linear_attn.out_proj");
       k.replace(layer(0) + ".linear_attn.in_proj_ba.weight", 0.3f);
       k.replace(layer(2) + ".mlp.shared_expert_gate.weight", 0.3f);
     }},
    {"LoRA on all of a Mamba-2 layer and its MLP, its norm saved", "tiny-granite-h",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"in_proj", "out_proj", "input_linear", "output_linear"};
       k.config["modules_to_save"] = {"layers.1.mamba.norm"};
       for (const int i : {0, 1, 3}) {  // layer 2 has attention
         for (const char* name : {"in_proj", "out_proj"}) k.add_pair(layer(i) + ".mamba." + name);
       }
       for (int i = 0; i < 4; ++i) {
         for (const char* name : {"input_linear", "output_linear"}) k.add_pair(layer(i) + ".shared_mlp." + name);
       }
       k.replace(layer(1) + ".mamba.norm.weight", 0.3f);
     }},
    {"DoRA on a Mamba-2 layer whose projections have biases, and on queries", "tiny-granite-h-moe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"in_proj", "out_proj", "q_proj"};
       for (const int i : {0, 1, 3}) {
         for (const char* name : {"in_proj", "out_proj"}) k.add_dora(layer(i) + ".mamba." + name);
       }
       k.add_dora(layer(2) + ".self_attn.q_proj");
     }},
    {"modules_to_save: a Mamba-2 layer's in_proj", "tiny-granite-h",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"out_proj"};
       k.config["modules_to_save"] = {"layers.0.mamba.in_proj"};
       for (const int i : {0, 1, 3}) k.add_pair(layer(i) + ".mamba.out_proj");
       k.replace(layer(0) + ".mamba.in_proj.weight", 0.3f);
     }},
    {"LoRA on all of latent attention, its latents' norms saved", "tiny-deepseek-v2",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"};
       k.config["modules_to_save"] = {"layers.1.self_attn.kv_a_layernorm"};
       for (const auto& [name, matrix] : base) {
         if (name.find(".self_attn.") == name.npos || name.find("_proj") == name.npos) continue;
         k.add_pair(name.substr(0, name.size() - std::string(".weight").size()));
       }
       k.replace(layer(1) + ".self_attn.kv_a_layernorm.weight", 0.3f);
     }},
    {"DoRA on kv_b_proj and shared experts", "tiny-deepseek-v2",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = R"(.*(kv_b_proj|shared_experts\.down_proj))";
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("kv_b_proj") || module.ends_with("shared_experts.down_proj")) k.add_dora(module);
       }
     }},
    {"LoRA on per-layer embeddings, their projections, and attention that shares keys", "tiny-gemma4-e",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"embed_tokens_per_layer",
                                     "per_layer_model_projection",
                                     "per_layer_input_gate",
                                     "per_layer_projection",
                                     "q_proj",
                                     "k_proj"};
       k.add_embedding_pair("model.embed_tokens_per_layer");
       k.add_pair("model.per_layer_model_projection");
       for (int i = 0; i < 6; ++i) {
         k.add_pair(layer(i) + ".per_layer_input_gate"), k.add_pair(layer(i) + ".per_layer_projection");
       }
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("q_proj") || module.ends_with("k_proj")) k.add_pair(module);
       }
     }},
    {"DoRA on projections of per-layer embeddings, their norms saved", "tiny-gemma4-e",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"per_layer_model_projection", "per_layer_input_gate", "per_layer_projection"};
       k.config["modules_to_save"] = {"per_layer_projection_norm", "layers.3.post_per_layer_input_norm"};
       k.add_dora("model.per_layer_model_projection");
       for (int i = 0; i < 6; ++i) {
         k.add_dora(layer(i) + ".per_layer_input_gate"), k.add_dora(layer(i) + ".per_layer_projection");
       }
       k.replace("model.per_layer_projection_norm.weight", 0.3f);
       k.replace(layer(3) + ".post_per_layer_input_norm.weight", 0.3f);
     }},
    {"LoRA on keys that are values too, on an MLP beside experts and their router", "tiny-gemma4-moe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"k_proj", "down_proj", "router.proj"};
       k.config["modules_to_save"] = {"layers.1.post_feedforward_layernorm_2"};
       for (int i = 0; i < 4; ++i) {
         k.add_pair(layer(i) + ".self_attn.k_proj"), k.add_pair(layer(i) + ".mlp.down_proj"),
             k.add_pair(layer(i) + ".router.proj");
       }
       k.replace(layer(1) + ".post_feedforward_layernorm_2.weight", 0.3f);
     }},
    {"DoRA on keys that are values too", "tiny-gemma4-moe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"k_proj"};
       for (int i = 0; i < 4; ++i) k.add_dora(layer(i) + ".self_attn.k_proj");
     }},
    {"q, k, v stored as one, in one layer", "tiny-phi3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"qkv_proj", "down_proj"};
       k.config["layers_to_transform"] = {1};
       k.add_pair(layer(1) + ".self_attn.qkv_proj"), k.add_pair(layer(1) + ".mlp.down_proj");
     }},
    {"DoRA on qkv_proj and gate_up_proj, stored as one", "tiny-phi3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"qkv_proj", "gate_up_proj"};
       for (int i = 0; i < 3; ++i) k.add_dora(layer(i) + ".self_attn.qkv_proj"), k.add_dora(layer(i) + ".mlp.gate_up_proj");
     }},
    {"LoRA on q_proj and k_proj, the last layer's unturned", "tiny-smollm3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj", "k_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj"), k.add_pair(layer(i) + ".self_attn.k_proj");
     }},
    {"LoRA on o_proj before a norm, norms after the blocks saved", "tiny-olmo3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"o_proj"};
       k.config["modules_to_save"] = {"layers.1.post_attention_layernorm", "layers.2.post_feedforward_layernorm"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.o_proj");
       k.replace(layer(1) + ".post_attention_layernorm.weight", 0.3f);
       k.replace(layer(2) + ".post_feedforward_layernorm.weight", 0.3f);
     }},
    {"DoRA on down_proj before a norm", "tiny-olmo3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"down_proj"};
       for (int i = 0; i < 4; ++i) k.add_dora(layer(i) + ".mlp.down_proj");
     }},
    {"LoRA on embed_tokens, a tied head and down_proj, under multipliers", "tiny-granite",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens", "lm_head", "down_proj"};
       k.add_embedding_pair("model.embed_tokens");
       k.add_head_pair("model.embed_tokens.weight");
       for (int i = 0; i < 3; ++i) k.add_pair(layer(i) + ".mlp.down_proj");
     }},
    {"tokens of its own under multipliers, tied", "tiny-granite",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       k.add_own_tokens(17);
       for (int i = 0; i < 3; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       for (const char* module : {"model.embed_tokens", "lm_head"}) k.save_layer(module, ".weight");
     }},
    {"DoRA on q_proj whose rows grow with their position", "tiny-ministral3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj"};
       for (int i = 0; i < 2; ++i) k.add_dora(layer(i) + ".self_attn.q_proj");
     }},
    {"DoRA on latent attention whose queries grow with their position", "tiny-mistral4",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_b_proj", "kv_b_proj"};
       for (int i = 0; i < 3; ++i) k.add_dora(layer(i) + ".self_attn.q_b_proj"), k.add_dora(layer(i) + ".self_attn.kv_b_proj");
     }},
    {"LoRA on stacked experts that softmax scores within groups, and on their router", "tiny-mistral4",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = R"(.*\.mlp\.(experts\..+|gate))";
       for (const auto& module : linear_modules(base)) {
         if (module.find(".experts.") != module.npos) k.add_pair(module);
       }
       for (int i : {1, 2}) k.add_pair(layer(i) + ".mlp.gate");
     }},
    {"LoRA on gate_up_proj, stored as one beside q, k, v apart; four norms saved", "tiny-glm4",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"gate_up_proj", "k_proj"};
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".mlp.gate_up_proj"), k.add_pair(layer(i) + ".self_attn.k_proj");
       for (const char* norm :
            {"input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"}) {
         k.config["modules_to_save"].push_back(std::string("layers.1.") + norm);
         k.replace(layer(1) + "." + norm + ".weight", 0.3f);
       }
     }},
    {"LoRA on q_proj before a norm after the rotation, which is saved", "tiny-hunyuan",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"layers.1.self_attn.query_layernorm", "layers.0.self_attn.key_layernorm"};
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace(layer(1) + ".self_attn.query_layernorm.weight", 0.3f);
       k.replace(layer(0) + ".self_attn.key_layernorm.weight", 0.3f);
     }},
    {"LoRA on attention and MLP side by side, their norm saved", "tiny-cohere2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"o_proj", "up_proj"};
       k.config["modules_to_save"] = {"layers.1.input_layernorm", "model.norm"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.o_proj"), k.add_pair(layer(i) + ".mlp.up_proj");
       k.replace(layer(1) + ".input_layernorm.weight", 0.3f);
       k.replace("model.norm.weight", 0.3f);
     }},
    {"LoRA on q_proj and k_proj before norms of each head with a mean, which are saved", "tiny-cohere",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj", "k_proj"};
       k.config["modules_to_save"] = {"layers.1.self_attn.q_norm", "layers.0.self_attn.k_norm"};
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".self_attn.q_proj"), k.add_pair(layer(i) + ".self_attn.k_proj");
       k.replace(layer(1) + ".self_attn.q_norm.weight", 0.3f);
       k.replace(layer(0) + ".self_attn.k_norm.weight", 0.3f);
     }},
    {"modules_to_save: norms", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"model.norm", "layers.2.input_layernorm"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("model.norm.weight", 0.3f);
       k.replace(layer(2) + ".input_layernorm.weight", 0.3f);
     }},
    {"modules_to_save: lm_head, embed_tokens", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"lm_head", "embed_tokens"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("lm_head.weight", 0.1f);
       k.replace("model.embed_tokens.weight", 0.1f);
     }},
    {"modules_to_save: a linear layer", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"layers.1.self_attn.v_proj", "layers.2.mlp.down_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace(layer(1) + ".self_attn.v_proj.weight", 0.2f);
       k.replace(layer(2) + ".mlp.down_proj.weight", 0.2f);
     }},
    {"trainable_token_indices", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of a tied model", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/true);
     }},
    {"trainable_token_indices of a tied model, and LoRA on its lm_head", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj", "lm_head"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/true);
       k.merged["lm_head.weight"] = k.merged.at("model.embed_tokens.weight");
       k.unties = true;
       k.add_head_pair("model.embed_tokens.weight");
     }},
    {"trainable_token_indices of a tied lm_head alone", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("lm_head", {17, 3, 900}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of both, tied, other tokens each", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/false);
       k.train_tokens("lm_head", {5, 17}, /*tied_head=*/false);
     }},
    {"trainable_token_indices of both, tied, the same tokens, saved once", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 3, 900}, /*tied_head=*/true);
       k.config["trainable_token_indices"]["lm_head"] = {17, 3, 900};
     }},
    {"tokens of its own: modules_to_save", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.config["modules_to_save"] = {"lm_head", "embed_tokens"};
       k.add_own_tokens(17);
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
       k.replace("lm_head.weight", 0.1f);
       k.replace("model.embed_tokens.weight", 0.1f);
       k.new_tokens.clear();
     }},
    {"tokens of its own: save_embedding_layers, tied", "tiny-qwen2",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       k.add_own_tokens(17);
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       for (const char* module : {"model.embed_tokens", "lm_head"}) k.save_layer(module, ".weight");
     }},
    {"tokens of its own: embed_tokens, lm_head", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"embed_tokens", "lm_head"};
       k.add_own_tokens(17);
       for (const char* module : {"model.embed_tokens", "lm_head"}) k.save_layer(module, ".base_layer.weight");
       k.add_embedding_pair("model.embed_tokens");
       k.add_head_pair("lm_head.weight");
     }},
    {"tokens of its own: trainable_token_indices, tied", "tiny-qwen3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"v_proj"};
       k.add_own_tokens(17);
       k.save_layer("model.embed_tokens", ".token_adapter.base_layer.weight");
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.v_proj");
       k.train_tokens("model.embed_tokens", {17, 4098, 4096}, /*tied_head=*/true);
     }},
    {"tokens of its own: new_embeddings.safetensors", "tiny-llama3",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"q_proj"};
       k.add_own_tokens(17);
       for (int i = 0; i < 4; ++i) k.add_pair(layer(i) + ".self_attn.q_proj");
     }},
};

}  // namespace

std::span<const Kind> all_kinds() {
  static const auto all = [] {
    std::vector<Kind> kinds(std::begin(kKinds), std::end(kKinds));
    const auto others = mixture_kinds();
    kinds.insert(kinds.end(), others.begin(), others.end());
    return kinds;
  }();
  return all;
}

Status write_adapter(const std::filesystem::path& folder, const AdapterKind& kind) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "adapter_config.json") << kind.config.dump(1);
  if (!kind.new_tokens.empty()) {
    CHORAL_RETURN_IF_ERROR(write_weights(folder / "new_embeddings.safetensors", kind.new_tokens));
  }
  return write_weights(folder / "adapter_model.safetensors", kind.files);
}

}  // namespace choral::golden
