#include "io/text_half.h"

#include <algorithm>
#include <array>

#include "base/printable.h"

namespace choral::io {
namespace {

// A class that also sees, and its half for text as a class of its own. Fields that a file lacks are what the half's configuration
// class takes; files leave out what equals it.
struct Whole {
  std::string_view whole;
  std::string_view type;  // the text_config's model_type, where that tells halves apart; empty: any
  std::string_view text, text_type;
  std::string_view fields;  // JSON
};
constexpr std::string_view kQwen2Fields =
    R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 1e6, "max_window_layers": 80})";
constexpr Whole kWholes[] = {
    {"Gemma3ForConditionalGeneration", "", "Gemma3ForCausalLM", "gemma3_text",
     R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 4096})"},
    {"Gemma4ForConditionalGeneration", "", "Gemma4ForCausalLM", "gemma4_text",
     R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 512})"},
    {"Gemma4UnifiedForConditionalGeneration", "", "Gemma4UnifiedForCausalLM", "gemma4_unified_text",
     R"({"vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8,
         "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 262144, "sliding_window": 1024})"},
    // Whether the head is the embeddings' table is the file's to show.
    {"Mistral3ForConditionalGeneration", "mistral", "MistralForCausalLM", "mistral",
     R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096, "tie_word_embeddings": true})"},
    {"Mistral3ForConditionalGeneration", "ministral3", "Ministral3ForCausalLM", "ministral3",
     R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "tie_word_embeddings": true})"},
    {"Mistral3ForConditionalGeneration", "mistral4", "Mistral4ForCausalLM", "mistral4",
     R"({"vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 2048, "num_hidden_layers": 36,
         "num_attention_heads": 32, "n_routed_experts": 128, "num_experts_per_tok": 4, "kv_lora_rank": 256, "q_lora_rank": 1024,
         "qk_rope_head_dim": 64, "qk_nope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 1048576})"},
    {"Llama4ForConditionalGeneration", "", "Llama4ForCausalLM", "llama4_text",
     R"({"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 40,
         "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "num_local_experts": 16,
         "num_experts_per_tok": 1})"},
    {"Qwen2VLForConditionalGeneration", "", "Qwen2ForCausalLM", "qwen2", kQwen2Fields},
    {"Qwen2_5_VLForConditionalGeneration", "", "Qwen2ForCausalLM", "qwen2", kQwen2Fields},
    {"Qwen3VLForConditionalGeneration", "", "Qwen3ForCausalLM", "qwen3",
     R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 128000, "rope_theta": 5e5})"},
    {"Qwen3_5ForConditionalGeneration", "", "Qwen3_5ForCausalLM", "qwen3_5_text",
     R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16,
         "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 32768})"},
    {"Qwen3_5MoeForConditionalGeneration", "", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text",
     R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2,
         "head_dim": 256, "max_position_embeddings": 32768, "num_experts": 256, "num_experts_per_tok": 8})"},
};

// Beginnings of names in the whole model, of transformers 4 and 5, and in the half.
struct Spelling {
  std::string_view whole, text;
};
constexpr std::array<Spelling, 6> kSpellings{{{"language_model.model.", "model."},
                                              {"language_model.lm_head.", "lm_head."},
                                              {"model.language_model.", "model."},
                                              {"embed_tokens.", "model.embed_tokens."},
                                              {"layers.", "model.layers."},
                                              {"norm.", "model.norm."}}};

// Qwen's rotations have sections of positions in time, height and width, which are one and the same in a text.
void merge_sections(ConfigObject& text) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const ConfigValue* rope = text.find(key);
    if (rope == nullptr || rope->if_object() == nullptr || rope->if_object()->find("mrope_section") == nullptr) continue;
    ConfigObject plain = *rope->if_object();
    plain.erase("mrope_section");
    plain.erase("mrope_interleaved");
    for (const char* type : {"type", "rope_type"}) {
      const ConfigValue* said = plain.find(type);
      if (said != nullptr && said->if_string() != nullptr && *said->if_string() == "mrope") plain.set(type, "default");
    }
    text.set(key, std::move(plain));
  }
}

// Of the whole model, where its halves do not say otherwise.
constexpr std::array<std::string_view, 8> kOfBoth{"torch_dtype",         "dtype",        "bos_token_id",  "eos_token_id",
                                                  "tie_word_embeddings", "pad_token_id", "_name_or_path", "quantization_config"};

}  // namespace

std::string text_half_name(std::string_view name) {
  for (const auto& [whole, text] : kSpellings) {
    if (name.starts_with(whole)) return std::string(text) + std::string(name.substr(whole.size()));
  }
  return std::string(name);
}

std::string whole_model_name(std::string_view name, std::string_view like) {
  const auto first_of = [](std::string_view path) { return path.substr(0, path.find('.')); };
  const std::string with_end = std::string(name) + '.';  // "lm_head" alone is a beginning too
  for (const auto& [whole, text] : kSpellings) {
    if (text_half_name(like) == like || first_of(whole) != first_of(like) || !with_end.starts_with(text)) continue;
    std::string out = std::string(whole) + with_end.substr(text.size());
    out.pop_back();
    return out;
  }
  return std::string(name);
}

Result<ConfigMap> text_half_config(const ConfigMap& config) {
  CHORAL_TRY(const auto classes, config.get_strings_or_empty("architectures"));
  const auto is_named = [&](const Whole& row) { return std::find(classes.begin(), classes.end(), row.whole) != classes.end(); };
  const Whole* row = std::find_if(std::begin(kWholes), std::end(kWholes), is_named);
  if (row == std::end(kWholes)) return config;
  // Qwen2-VL's and Qwen2.5-VL's first files have the text's fields at the top.
  const bool at_top = !config.contains("text_config") && config.contains("hidden_size");
  CHORAL_TRY(const ConfigMap text, at_top ? Result<ConfigMap>(config) : config.get_map("text_config"));
  if (!row->type.empty()) {
    CHORAL_TRY(const std::string type, text.get_string_or("model_type", row->type));
    row = std::find_if(row, std::end(kWholes), [&](const Whole& each) { return is_named(each) && each.type == type; });
    if (row == std::end(kWholes)) {
      return unsupported("{} is '{}': no such text model is served of {}", text.path_of("model_type"), printable(type),
                         classes.front());
    }
  }
  CHORAL_TRY(const ConfigMap defaults, ConfigMap::parse_json(row->fields, config.source()));
  ConfigObject out = defaults.object();
  for (const auto& member : text.members()) out.set(member.key, member.value);
  for (const std::string_view key : kOfBoth) {
    if (const ConfigValue* value = config.find(key); value != nullptr && !text.contains(key)) out.set(key, *value);
  }
  // Either may say it, the older files the half. A head that differs is used all the same.
  CHORAL_TRY(const bool half_tied, text.get_bool_or("tie_word_embeddings", false));
  CHORAL_TRY(const bool tied, config.get_bool_or("tie_word_embeddings", half_tied));
  if (tied || half_tied) out.set("tie_word_embeddings", true);
  out.erase("vision_config");
  if (text.contains("rope_parameters") && !text.contains("rope_theta")) out.erase("rope_theta");  // it stands there
  merge_sections(out);
  out.set("architectures", ConfigArray{std::string(row->text)});
  out.set("model_type", std::string(row->text_type));
  return ConfigMap(std::move(out), config.source());
}

}  // namespace choral::io
