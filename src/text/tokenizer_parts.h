// What a Tokenizer is made of, and the builder that both loaders (tokenizer_json.cc, tokenizer_gguf.cc) fill.
// Thread-safety: Parts is immutable once in a Tokenizer; the builder belongs to one thread.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace choral::text {

// One TemplateProcessing step: ids to put before, between and after. `sequence` stands for what was encoded.
struct TemplateItem {
  bool sequence = false;
  std::vector<int32_t> ids;
};
using Template = std::vector<TemplateItem>;

// Tokenizer's own; the name is reachable for its builder and its loaders.
struct Tokenizer::Parts {
  Vocabulary model_vocabulary;  // the model looks up here
  Vocabulary all_tokens;        // the model's and added ones; empty where all added ones are the model's
  const Vocabulary& vocabulary() const { return all_tokens.size() > 0 ? all_tokens : model_vocabulary; }
  AddedTokenMatcher raw_matcher;
  AddedTokenMatcher normalized_matcher;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<Model> model;
  std::vector<Template> templates;  // run one after another
  // The most bytes that one token stands for, of a text and of a word that comes to the model; 0: no bound is known, because some
  // stage drops text.
  size_t bytes_per_token = 0, word_bytes_per_token = 0;
  DecoderSpec decoder;

  std::vector<bool> special;  // by id
  std::vector<bool> unused;   // by id: that fill a place of the vocabulary for nobody; empty = none
  std::string text_arena;     // by id: what the decoder starts from, and what token_bytes() gives
  std::vector<std::pair<uint64_t, uint32_t>> decoder_text, bytes;

  std::vector<std::pair<std::string, std::string>> special_tokens;  // ("bos_token", "<s>")
  std::vector<NamedTemplate> chat_templates;

  std::string_view text_of(const std::pair<uint64_t, uint32_t>& range) const {
    return std::string_view(text_arena).substr(range.first, range.second);
  }
};

struct Tokenizer::More {
  struct Token {
    int32_t id;
    bool special;
    std::string content, decoder_text, bytes;
  };
  std::vector<Token> tokens;                          // ids ascend; those of the parts that they stand over are unused there
  AddedTokenMatcher raw_matcher, normalized_matcher;  // in place of the parts'
  size_t bytes_per_token = 0;

  const Token* find(int32_t id) const {
    const auto at =
        std::lower_bound(tokens.begin(), tokens.end(), id, [](const Token& t, int32_t value) { return t.id < value; });
    return at == tokens.end() || at->id != id ? nullptr : &*at;
  }
};

class TokenizerBuilder {
 public:
  TokenizerBuilder() : parts_(std::make_unique<Tokenizer::Parts>()) {}

  Tokenizer::Parts& parts() { return *parts_; }
  // As HF: a token the model or an earlier added token already spells keeps that id, others get the next free one; the id in
  // the file is not asked. `model_size` is the number of the model's tokens. Call after the normalizer is set.
  Status add_tokens(const std::vector<AddedToken>& tokens, size_t model_size);
  bool is_added(std::string_view content) const { return added_index_.find(content) >= 0; }
  std::optional<int32_t> find(std::string_view token) const;  // the id of an added token or one of the model's
  void set_special_token(std::string_view role_key, std::string_view token);
  // The last ByteLevel step may leave bytes as they are when the model takes bytes. Call before the model is made.
  bool model_takes_bytes() const;

  Result<std::shared_ptr<const Tokenizer>> build();

 private:
  Status index_added_tokens();
  Status join_vocabularies();
  Status index_texts();
  void bound_tokens();

  std::unique_ptr<Tokenizer::Parts> parts_;
  std::deque<AddedToken> added_;                           // one for each content, with its latest flags
  StringTable added_index_;                                // content -> place in added_
  std::vector<AddedToken> special_order_, classic_order_;  // as they came; special ones are matched first
};

}  // namespace choral::text
