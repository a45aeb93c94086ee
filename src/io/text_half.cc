#include "io/text_half.h"

#include <algorithm>
#include <array>

namespace choral::io {
namespace {

constexpr std::string_view kWhole = "Gemma3ForConditionalGeneration", kText = "Gemma3ForCausalLM";

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

// What Gemma3TextConfig has where a file has nothing; files leave out what equals it.
ConfigObject text_defaults() {
  ConfigObject out;
  out.set("vocab_size", int64_t{262'208});
  out.set("hidden_size", int64_t{2304});
  out.set("intermediate_size", int64_t{9216});
  out.set("num_hidden_layers", int64_t{26});
  out.set("num_attention_heads", int64_t{8});
  out.set("num_key_value_heads", int64_t{4});
  out.set("head_dim", int64_t{256});
  out.set("max_position_embeddings", int64_t{131'072});
  out.set("sliding_window", int64_t{4096});
  return out;
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
  if (std::find(classes.begin(), classes.end(), kWhole) == classes.end()) return config;
  CHORAL_TRY(const ConfigMap text, config.get_map("text_config"));
  ConfigObject out = text_defaults();
  for (const auto& member : text.members()) out.set(member.key, member.value);
  for (const std::string_view key : kOfBoth) {
    if (const ConfigValue* value = config.find(key); value != nullptr && !text.contains(key)) out.set(key, *value);
  }
  out.set("architectures", ConfigArray{std::string(kText)});
  out.set("model_type", "gemma3_text");
  return ConfigMap(std::move(out), config.source());
}

}  // namespace choral::io
