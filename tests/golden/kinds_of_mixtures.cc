#include "golden/kinds.h"

namespace choral::golden {
namespace {

const Kind kKinds[] = {
    {"LoRA on experts, ranks that differ, and on their router", "tiny-qwen3moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"gate_proj", "up_proj", "down_proj", "gate"};
       k.config["rank_pattern"] = {{"experts.1.down_proj", 7}};
       for (const auto& module : linear_modules(base)) {
         if (module.find(".mlp.") == module.npos) continue;
         module.ends_with("experts.1.down_proj") ? k.add_pair(module, 7, 8.0 / 7) : k.add_pair(module);
       }
       for (int i = 1; i < 4; ++i) k.add_pair(layer(i) + ".mlp.gate");
     }},
    {"DoRA on experts", "tiny-qwen3moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"up_proj", "down_proj"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("up_proj") || module.ends_with("down_proj")) k.add_dora(module);
       }
     }},
    {"modules_to_save: an expert's matrix", "tiny-qwen3moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"up_proj"};
       k.config["modules_to_save"] = {"layers.1.mlp.experts.2.down_proj"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("up_proj")) k.add_pair(module);
       }
       k.replace(layer(1) + ".mlp.experts.2.down_proj.weight", 0.3f);
     }},
    {"LoRA on experts that a sparse mixer weighs, and on their router", "tiny-phimoe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"w1", "w2", "gate"};
       for (const auto& [name, matrix] : base) {
         if (name.ends_with(".w1.weight") || name.ends_with(".w2.weight")) k.add_pair(name.substr(0, name.size() - 7));
       }
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".block_sparse_moe.gate");
     }},
    {"bias = \"all\", of attention, of norms and of the head", "tiny-phimoe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["bias"] = "all";
       k.config["target_modules"] = {"v_proj"};
       for (int i = 0; i < 2; ++i) {
         k.add_pair(layer(i) + ".self_attn.v_proj");
         for (const char* part : {"q_proj", "k_proj", "v_proj", "o_proj"}) k.replace_bias(layer(i) + ".self_attn." + part);
       }
       for (const auto& [name, matrix] : base) {
         if (name.ends_with("norm.bias") || name == "lm_head.bias") k.replace(name, 0.5f);
       }
     }},
    {"modules_to_save: a norm with its bias", "tiny-phimoe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"o_proj"};
       k.config["modules_to_save"] = {"layers.1.post_attention_layernorm"};
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".self_attn.o_proj");
       k.replace(layer(1) + ".post_attention_layernorm.weight", 0.3f);
       k.replace(layer(1) + ".post_attention_layernorm.bias", 0.3f);
     }},
    {"LoRA on a shared expert, its gate and a router", "tiny-qwen2moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = R"(.*mlp\.(gate|shared_expert_gate|shared_expert\.(gate|up|down)_proj))";
       for (const auto& module : linear_modules(base)) {
         if (module.find(".shared_expert.") != module.npos) k.add_pair(module);
       }
       for (int i : {0, 1}) k.add_pair(layer(i) + ".mlp.gate"), k.add_pair(layer(i) + ".mlp.shared_expert_gate");
     }},
    {"DoRA on a shared expert; its gate saved whole", "tiny-qwen2moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = R"(.*shared_expert\.up_proj)";
       k.config["modules_to_save"] = {"layers.1.mlp.shared_expert_gate"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("shared_expert.up_proj")) k.add_dora(module);
       }
       k.replace(layer(1) + ".mlp.shared_expert_gate.weight", 0.3f);
     }},
    {"LoRA on q_proj and k_proj with head norms and a partial rope, on experts chosen with a bias", "tiny-glm4moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"q_proj", "k_proj", "down_proj", "gate"};
       k.config["modules_to_save"] = {"layers.1.self_attn.k_norm"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("q_proj") || module.ends_with("k_proj") || module.ends_with("down_proj")) k.add_pair(module);
       }
       for (int i : {1, 2}) k.add_pair(layer(i) + ".mlp.gate");
       k.replace(layer(1) + ".self_attn.k_norm.weight", 0.3f);
     }},
    {"DoRA on shared experts and v_proj with a bias", "tiny-glm4moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = R"(.*(v_proj|shared_experts\.up_proj))";
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("v_proj") || module.ends_with("shared_experts.up_proj")) k.add_dora(module);
       }
     }},
    {"LoRA on experts whose weight acts on what they read, and on their router", "tiny-llama4",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = R"(.*\.feed_forward\.(experts\..+|router))";
       for (const auto& module : linear_modules(base)) {
         if (module.find(".experts.") != module.npos) k.add_pair(module);
       }
       for (int i : {1, 3}) k.add_pair(layer(i) + ".feed_forward.router");
     }},
    {"DoRA on q_proj before a norm without weights, in layers that turn and one that does not", "tiny-llama4",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj"};
       for (int i = 0; i < 4; ++i) k.add_dora(layer(i) + ".self_attn.q_proj");
     }},
    {"LoRA on a shared MLP's two matrices, gate and up as one", "tiny-granitemoe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["target_modules"] = {"input_linear", "output_linear"};
       for (int i = 0; i < 2; ++i) {
         for (const char* part : {"input_linear", "output_linear"}) k.add_pair(layer(i) + ".shared_mlp." + part);
       }
     }},
    {"DoRA on q_proj and output_linear under multipliers", "tiny-granitemoe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj", "output_linear"};
       for (int i = 0; i < 2; ++i) k.add_dora(layer(i) + ".self_attn.q_proj"), k.add_dora(layer(i) + ".shared_mlp.output_linear");
     }},
    {"LoRA on q_proj and k_proj before a norm of all heads, on experts and their router", "tiny-olmoe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"q_proj", "k_proj", "down_proj", "gate"};
       k.config["modules_to_save"] = {"layers.1.self_attn.q_norm"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("q_proj") || module.ends_with("k_proj") || module.ends_with("down_proj")) k.add_pair(module);
       }
       for (int i = 0; i < 3; ++i) k.add_pair(layer(i) + ".mlp.gate");
       k.replace(layer(1) + ".self_attn.q_norm.weight", 0.3f);
     }},
    {"DoRA on k_proj before a norm of all heads", "tiny-olmoe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"k_proj"};
       for (int i = 0; i < 3; ++i) k.add_dora(layer(i) + ".self_attn.k_proj");
     }},
    {"LoRA on experts, on the MLP beside them and on their router", "tiny-hunyuan-moe",
     [](AdapterKind& k, const WeightSet& base) {
       k.config["target_modules"] = {"wg", "gate_proj", "down_proj"};
       for (const auto& module : linear_modules(base)) {
         if (module.ends_with("gate_proj") || module.ends_with("down_proj")) k.add_pair(module);
       }
       for (int i = 0; i < 2; ++i) k.add_pair(layer(i) + ".mlp.gate.wg");
     }},
    {"DoRA on the MLP beside experts and on queries before a norm", "tiny-hunyuan-moe",
     [](AdapterKind& k, const WeightSet&) {
       k.config["use_dora"] = true;
       k.config["target_modules"] = {"q_proj", "shared_mlp.up_proj"};
       for (int i = 0; i < 2; ++i) k.add_dora(layer(i) + ".self_attn.q_proj"), k.add_dora(layer(i) + ".mlp.shared_mlp.up_proj");
     }},
};

}  // namespace

std::span<const Kind> mixture_kinds() { return kKinds; }

}  // namespace choral::golden
