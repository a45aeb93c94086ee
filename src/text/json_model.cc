// Readers of tokenizer.json's "model" and "added_tokens".
#include "base/printable.h"
#include "text/json_fields.h"
#include "text/tokenizer_json.h"
#include "text/unigram_model.h"

namespace choral::text {
namespace {

Status read_bpe(const JsonFields& fields, TokenizerBuilder& builder, size_t& size) {
  CHORAL_TRY(const simdjson::dom::object vocab, fields.object("vocab"));
  Vocabulary& vocabulary = builder.parts().model_vocabulary;
  size = 0;
  for (const auto [token, value] : vocab) {
    int64_t id;
    if (value.get(id)) return corrupt("model: the id of token {} is not an integer", quoted(token, 100));
    CHORAL_RETURN_IF_ERROR(vocabulary.add(token, id));
    ++size;
  }
  CHORAL_RETURN_IF_ERROR(vocabulary.finish());
  if (vocabulary.size() != size) return corrupt("model: the vocabulary spells a token twice ({} entries)", size);

  BpeConfig config;
  if (fields.find("unk_token")) {
    CHORAL_TRY(config.unk_token, fields.string("unk_token"));
  }
  if (const auto dropout = fields.find("dropout")) {
    double p;
    if (dropout->get(p) || p != 0.0) return unsupported("model: BPE dropout makes encoding random; set it to null");
  }
  CHORAL_TRY(config.continuing_subword_prefix, fields.string_or("continuing_subword_prefix", ""));
  CHORAL_TRY(config.end_of_word_suffix, fields.string_or("end_of_word_suffix", ""));
  CHORAL_TRY(const simdjson::dom::array list, fields.array("merges"));
  CHORAL_TRY(const auto merges, read_merges(list));
  CHORAL_TRY(config.merges, find_merges(vocabulary, merges, config.continuing_subword_prefix));
  CHORAL_TRY(config.fuse_unk, fields.boolean_or("fuse_unk", false));
  CHORAL_TRY(config.byte_fallback, fields.boolean_or("byte_fallback", false));
  CHORAL_TRY(config.ignore_merges, fields.boolean_or("ignore_merges", false));
  config.bytes = builder.model_takes_bytes() && !config.byte_fallback && config.continuing_subword_prefix.empty() &&
                 config.end_of_word_suffix.empty();
  if (config.bytes) builder.parts().pre_tokenizer.steps.back().to_chars = false;
  CHORAL_TRY(builder.parts().model, BpeModel::create(vocabulary, config));
  return {};
}

Status read_unigram(const JsonFields& fields, TokenizerBuilder& builder, size_t& size) {
  CHORAL_TRY(const simdjson::dom::array vocab, fields.array("vocab"));
  Vocabulary& vocabulary = builder.parts().model_vocabulary;
  std::vector<double> scores;
  for (const JsonElement item : vocab) {
    std::string_view token;
    double score;
    simdjson::dom::array pair;
    if (item.get(pair) || pair.size() != 2 || pair.at(0).get(token) || pair.at(1).get(score)) {
      return corrupt("model: entry {} of the vocabulary is not a pair of token and score", scores.size());
    }
    CHORAL_RETURN_IF_ERROR(vocabulary.add(token, std::ssize(scores)));
    scores.push_back(score);
  }
  CHORAL_RETURN_IF_ERROR(vocabulary.finish());
  size = scores.size();
  std::optional<int32_t> unk_id;
  if (fields.find("unk_id")) {
    CHORAL_TRY(const int64_t id, fields.integer("unk_id"));
    if (id < 0 || id >= static_cast<int64_t>(size)) return corrupt("model: unk_id {} in a vocabulary of {}", id, size);
    unk_id = static_cast<int32_t>(id);
  }
  CHORAL_TRY(const bool byte_fallback, fields.boolean_or("byte_fallback", false));
  CHORAL_TRY(builder.parts().model, UnigramModel::create(vocabulary, std::move(scores), unk_id, byte_fallback));
  return {};
}

constexpr size_t kMaxMerges = 8 << 20;

}  // namespace

Result<std::vector<TextPair>> read_merges(simdjson::dom::array list) {
  std::vector<TextPair> merges;
  if (list.size() == 0xFFFFFF) merges.reserve(0xFFFFFF);  // simdjson's count is capped there
  merges.reserve(list.size());
  for (const JsonElement item : list) {
    if (merges.size() >= kMaxMerges) return too_large("model: more than {} merges", kMaxMerges);
    std::string_view left, right, both;
    if (item.is_array()) {
      simdjson::dom::array pair = item;
      if (pair.size() != 2 || pair.at(0).get(left) || pair.at(1).get(right)) {
        return corrupt("model: merge {} is not a pair of strings", merges.size());
      }
      merges.emplace_back(left, right);
      continue;
    }
    if (item.get(both)) return corrupt("model: merge {} is neither a string nor a pair", merges.size());
    if (both.starts_with("#version")) continue;  // a left-over first line of merges.txt, which HF skips too
    const size_t space = both.find(' ');
    if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
      return corrupt("model: merge {} ({}) is not two tokens with one space between", merges.size(), quoted(both, 100));
    }
    merges.emplace_back(both.substr(0, space), both.substr(space + 1));
  }
  return merges;
}

Status read_model(JsonElement element, TokenizerBuilder& builder, size_t& size) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, "model"));
  std::string_view type;
  if (fields.find("type")) {
    CHORAL_TRY(type, fields.string("type"));
  } else if (fields.find("merges")) {
    type = "BPE";  // files from before the field existed
  }
  if (type == "BPE") return read_bpe(fields, builder, size);
  if (type == "Unigram") return read_unigram(fields, builder, size);
  return unsupported("model type {}; Choral knows BPE and Unigram", quoted(type));
}

Result<std::vector<AddedToken>> read_added_tokens(simdjson::dom::array array) {
  std::vector<AddedToken> tokens;
  for (const JsonElement item : array) {
    CHORAL_TRY(const JsonFields fields, JsonFields::of(item, "added_tokens"));
    AddedToken token;
    CHORAL_TRY(token.content, fields.string("content"));
    CHORAL_TRY(token.single_word, fields.boolean_or("single_word", false));
    CHORAL_TRY(token.lstrip, fields.boolean_or("lstrip", false));
    CHORAL_TRY(token.rstrip, fields.boolean_or("rstrip", false));
    CHORAL_TRY(token.normalized, fields.boolean_or("normalized", true));
    CHORAL_TRY(token.special, fields.boolean_or("special", false));
    CHORAL_TRY(const int64_t id, fields.integer("id"));
    if (id < 0 || id >= kMaxVocabulary) return corrupt("added token {} has id {}", quoted(token.content, 100), id);
    token.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(token));
    if (std::ssize(tokens) > kMaxVocabulary) return too_large("more than {} added tokens", kMaxVocabulary);
  }
  return tokens;
}

}  // namespace choral::text
