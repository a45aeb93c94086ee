#include "lora/peft/module_names.h"

#include <array>
#include <vector>

#include "io/text_half.h"

namespace choral::lora {
namespace {

// A tail as dot-separated pieces; '*' is one piece of any text: the adapter's name, which PEFT's own save leaves out.
struct Tail {
  std::string_view pattern;
  TensorPart part;
};

// Longer tails stand before those they end with.
constexpr std::array<Tail, 33> kTails{{
    {"lora_A.weight", TensorPart::kLoraA},
    {"lora_B.weight", TensorPart::kLoraB},
    {"lora_B.bias", TensorPart::kLoraBias},
    {"lora_A.*.weight", TensorPart::kLoraA},
    {"lora_B.*.weight", TensorPart::kLoraB},
    {"lora_B.*.bias", TensorPart::kLoraBias},
    {"lora_embedding_A", TensorPart::kEmbeddingA},
    {"lora_embedding_B", TensorPart::kEmbeddingB},
    {"lora_embedding_A.weight", TensorPart::kEmbeddingA},
    {"lora_embedding_B.weight", TensorPart::kEmbeddingB},
    {"lora_embedding_A.*", TensorPart::kEmbeddingA},
    {"lora_embedding_B.*", TensorPart::kEmbeddingB},
    {"lora_magnitude_vector", TensorPart::kMagnitude},
    {"lora_magnitude_vector.weight", TensorPart::kMagnitude},
    {"lora_magnitude_vector.*", TensorPart::kMagnitude},
    {"lora_magnitude_vector.*.weight", TensorPart::kMagnitude},
    {"token_adapter.trainable_tokens_delta", TensorPart::kTokenRows},
    {"token_adapter.trainable_tokens_delta.*", TensorPart::kTokenRows},
    {"modules_to_save.e_score_correction_bias", TensorPart::kChoiceBias},
    {"modules_to_save.*.e_score_correction_bias", TensorPart::kChoiceBias},
    {"e_score_correction_bias", TensorPart::kChoiceBias},
    {"token_adapter.base_layer.weight", TensorPart::kBaseWeight},
    {"token_adapter.base_layer.bias", TensorPart::kBaseBias},
    {"base_layer.weight", TensorPart::kBaseWeight},
    {"base_layer.bias", TensorPart::kBaseBias},
    {"modules_to_save.weight", TensorPart::kWeight},
    {"modules_to_save.bias", TensorPart::kBias},
    {"modules_to_save.*.weight", TensorPart::kWeight},
    {"modules_to_save.*.bias", TensorPart::kBias},
    {"original_module.weight", TensorPart::kBaseWeight},
    {"original_module.bias", TensorPart::kIdleBias},
    {"weight", TensorPart::kWeight},
    {"bias", TensorPart::kBias},
}};

// The length of the module's name before the tail, or nothing.
std::optional<size_t> match_tail(std::string_view name, std::string_view pattern) {
  size_t at = name.size();
  while (true) {
    const size_t cut = pattern.rfind('.');
    const std::string_view piece = cut == std::string_view::npos ? pattern : pattern.substr(cut + 1);
    const size_t dot = name.substr(0, at).rfind('.');
    if (dot == std::string_view::npos || dot == 0) return std::nullopt;  // a module must be left before the tail
    const std::string_view last = name.substr(dot + 1, at - dot - 1);
    if (last.empty() || (piece != "*" && piece != last)) return std::nullopt;
    at = dot;
    if (cut == std::string_view::npos) return at;
    pattern = pattern.substr(0, cut);
  }
}

}  // namespace

std::string_view without_peft_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  return name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
}

std::optional<TensorName> parse_tensor_name(std::string_view peft_name) {
  const std::string text_name = io::text_half_name(without_peft_prefix(peft_name));
  const std::string_view name = text_name;
  for (const auto& tail : kTails) {
    if (const auto length = match_tail(name, tail.pattern)) return TensorName{std::string(name.substr(0, *length)), tail.part};
  }
  return std::nullopt;
}

std::string_view part_tail(TensorPart part) {
  if (part == TensorPart::kNewRows) return "new rows";
  for (const auto& tail : kTails) {
    if (tail.part == part) return part == TensorPart::kWeight ? "weight" : part == TensorPart::kBias ? "bias" : tail.pattern;
  }
  return {};
}

std::string renamed_in_5(std::string_view module) {
  constexpr std::string_view kBlock = ".block_sparse_moe.";
  const size_t at = module.find(kBlock);
  if (at == std::string_view::npos) return std::string(module);
  std::string_view rest = module.substr(at + kBlock.size()), part;
  for (const auto& [name, since] : {std::pair(".w1", ".gate_proj"), {".w3", ".up_proj"}, {".w2", ".down_proj"}}) {
    if (rest.ends_with(name)) rest.remove_suffix(3), part = since;
  }
  return fmt::format("{}.mlp.{}{}", module.substr(0, at), rest, part);
}

bool is_end_of(std::string_view name, std::string_view module) {
  return module == name ||
         (module.size() > name.size() && module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
}

}  // namespace choral::lora
