// The tokenizer of an adapter that brings tokens of its own: the base's, with the tokens that the adapter's folder adds. They are
// recognised in the prompts and decoded in the answers of its requests only. Safe on any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lora/peft/adapter_source.h"
#include "lora/peft/lora_model.h"
#include "lora/target.h"
#include "text/added_tokens.h"
#include "text/tokenizer.h"

namespace choral::engine {

struct OwnTokenizer {
  std::shared_ptr<const text::Tokenizer> tokenizer;  // null: the base's
  std::vector<text::AddedToken> tokens;              // those that the base's does not have
  std::optional<int32_t> eos_id;                     // one of them that ends an answer
  std::vector<std::string> notes;
};

// What it takes to read one.
struct OwnTokenizerSource {
  std::shared_ptr<const text::Tokenizer> base;  // null: the model has none, nor has any adapter
  std::span<const lora::LoRATarget> targets;
  lora::LoRALoadOptions options;
};

// The files of an adapter's folder that are read for it.
struct TokenizerFile {
  const char* name;
  uint64_t most_bytes;
};
inline constexpr std::array<TokenizerFile, 3> kTokenizerFiles{{{"tokenizer.json", uint64_t{256} << 20},
                                                               {"tokenizer_config.json", uint64_t{16} << 20},
                                                               {"added_tokens.json", uint64_t{16} << 20}}};

// Of the adapter, of whose tensors at most the shapes are read. A token without a row is none. An error: the files contradict the
// base's tokenizer, or cannot be read, and the adapter has tokens that need them; else that is a note.
Result<std::shared_ptr<const OwnTokenizer>> read_own_tokenizer(const lora::AdapterSource& adapter,
                                                               const OwnTokenizerSource& source);

}  // namespace choral::engine
