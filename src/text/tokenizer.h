// Text to token ids and back, as Hugging Face's `tokenizers` 0.22 does it, from tokenizer.json or from GGUF metadata.
// The stages are HF's: added tokens cut out of the raw text -> normalizer -> added tokens again -> pre-tokenizer -> model
// (BPE or Unigram) -> post-processor. What the file asks for and this build cannot do is an error at load, never a guess.
// Bytes that are not UTF-8 count as U+FFFD each maximal broken part, as Python's bytes.decode("utf-8", "replace") gives.
// truncation and padding of tokenizer.json are ignored: a server decides about lengths itself (transformers resets them too).
// Thread-safety: immutable after load; every method may be called from many threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "text/encode_budget.h"

namespace choral::text {

struct EncodeOptions {
  bool add_special_tokens = true;  // run the post-processor's template: BOS and the like
  bool parse_special = true;       // false: text that spells a special token is plain text (for untrusted input)
  size_t max_tokens = SIZE_MAX;    // a text with more, not counting those of add_special_tokens, is refused when that is sure
  EncodeLimits limits{};
};

struct DecodeOptions {
  bool skip_special_tokens = false;
};

struct AddedToken;  // text/added_tokens.h

// One named chat template; `name` is "default" where there is a single one.
struct NamedTemplate {
  std::string name;
  std::string source;
};

// What GGUF metadata says (keys tokenizer.ggml.*); an absent key is the default here.
struct GgufTokenizerData {
  std::string model;  // "gpt2" (byte-level BPE) | "llama" (SentencePiece BPE by scores) | "gemma4" (by merges)
  std::string pre;    // the pre-tokenizer's name, for model "gpt2"
  std::vector<std::string> tokens;
  std::vector<float> scores;         // as many as tokens, or none
  std::vector<int32_t> token_types;  // 1 normal 2 unknown 3 control 4 user defined 5 unused 6 byte; as many as tokens, or none
  std::vector<std::string> merges;   // "a b", of "gpt2" and "gemma4"
  std::optional<int64_t> bos_id, eos_id, unk_id, pad_id;
  std::vector<std::pair<std::string, int64_t>> fill_ids;  // of the roles that fill_tokens.h names: ("fim_pre", 5)
  std::optional<bool> add_bos, add_eos, add_space_prefix;
  bool special_take_space = false;  // special tokens take the white space after them, but those that open and end a text
  std::vector<NamedTemplate> chat_templates;
};

class Tokenizer {
 public:
  // `tokenizer_config_json` may be empty; it gives special-token names, chat templates, clean_up_tokenization_spaces.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view tokenizer_json,
                                                            std::string_view tokenizer_config_json = {});
  static Result<std::shared_ptr<const Tokenizer>> from_gguf(const GgufTokenizerData& data);
  // `base` with more tokens, at the ids that they bring: it shares all else with it. Those that `base` knows with these ids may
  // be among them; `unknown` of `base` are the others. corrupt: a token or an id that is another's.
  static Result<std::shared_ptr<const Tokenizer>> with_tokens(const Tokenizer& base, std::span<const AddedToken> tokens);
  Result<std::vector<AddedToken>> unknown(std::span<const AddedToken> tokens) const;
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // too_large: over 64 MiB, over max_tokens, or a word over 8 MiB. corrupt: the file asks for more work or makes more of the text
  // than its size allows (encode_budget.h). invalid_argument: a character that the model cannot spell.
  Result<std::vector<int32_t>> encode(std::string_view utf8, EncodeOptions options = {}) const;
  // Ids nobody knows are left out, as HF does. The result is valid UTF-8.
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as the file spells it ("Ġthe", "▁the", "<0x0A>"); nothing for an unknown id. Lives as long as the tokenizer.
  std::optional<std::string_view> id_to_token(int32_t id) const;
  // The bytes this token stands for in the middle of a text ("Ġthe" -> " the", "<0x0A>" -> "\n"), for grammars and
  // log-probabilities; may be a part of a UTF-8 character. Empty for an unknown id.
  std::string_view token_bytes(int32_t id) const;

  int32_t vocab_size() const;         // highest id + 1; there may be holes below
  bool is_special(int32_t id) const;  // left out by skip_special_tokens
  bool is_unused(int32_t id) const;   // fills a place of the vocabulary for nobody; with_tokens may give it to a token

  // Special tokens by role: "bos", "eos", "unk", "pad", "sep", "cls", "mask". From tokenizer_config.json or GGUF.
  std::optional<int32_t> special_id(std::string_view role) const;
  std::string_view special_token(std::string_view role) const;  // its text, empty when there is none
  std::optional<int32_t> bos_id() const { return special_id("bos"); }
  std::optional<int32_t> eos_id() const { return special_id("eos"); }
  // ("bos_token", "<s>") … for the chat template's variables, additional ones of the config included.
  std::span<const std::pair<std::string, std::string>> special_tokens() const;

  std::span<const NamedTemplate> chat_templates() const;  // in the file's order
  bool clean_up_tokenization_spaces() const;

  struct Parts;  // of the loaders in this folder

 private:
  friend class StreamDetokenizer;
  friend class TokenizerBuilder;
  struct More;  // what with_tokens() changes
  explicit Tokenizer(std::shared_ptr<const Parts> parts);
  // What the decoder makes of a token; nothing for an unknown one.
  std::optional<std::string_view> decoder_text(int32_t id) const;

  std::shared_ptr<const Parts> parts_;
  std::unique_ptr<const More> more_;  // null: nothing
};

}  // namespace choral::text
