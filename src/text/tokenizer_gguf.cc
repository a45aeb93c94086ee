// A tokenizer from GGUF metadata: the names there ("smollm", "llama-bpe" …) stand for what tokenizer.json spells out.
#include <algorithm>

#include "base/nearest_name.h"
#include "base/printable.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_parts.h"

namespace choral::text {
namespace {

class GgufReader {
 public:
  explicit GgufReader(const GgufTokenizerData& data) : data_(data), parts_(builder_.parts()) {}

  Result<std::shared_ptr<const Tokenizer>> run() {
    const size_t n = data_.tokens.size();
    if (n == 0) return corrupt("tokenizer.ggml.tokens is empty");
    if (!data_.token_types.empty() && data_.token_types.size() != n) {
      return corrupt("{} tokens and {} token types", n, data_.token_types.size());
    }
    if (!data_.scores.empty() && data_.scores.size() != n) return corrupt("{} tokens and {} scores", n, data_.scores.size());
    for (size_t id = 0; id < n; ++id) {
      CHORAL_RETURN_IF_ERROR(parts_.model_vocabulary.add(data_.tokens[id], static_cast<int64_t>(id)));
    }
    CHORAL_RETURN_IF_ERROR(parts_.model_vocabulary.finish());
    if (data_.model == "gpt2") {
      CHORAL_RETURN_IF_ERROR(byte_level());
    } else if (data_.model == "llama") {
      CHORAL_RETURN_IF_ERROR(sentence_piece());
    } else if (data_.model == "gemma4") {
      CHORAL_RETURN_IF_ERROR(merged_pieces());
    } else {
      return unsupported("tokenizer model {}; Choral knows \"gpt2\", \"llama\" and \"gemma4\"", quoted(data_.model));
    }
    CHORAL_RETURN_IF_ERROR(add_special_tokens());
    parts_.chat_templates = data_.chat_templates;
    return builder_.build();
  }

 private:
  int type(size_t id) const { return token_type(data_, id); }

  Status byte_level() {
    const auto kind = std::find_if(kGgufPreTokenizers.begin(), kGgufPreTokenizers.end(),
                                   [&](const GgufPreTokenizer& k) { return k.name == data_.pre; });
    if (kind == kGgufPreTokenizers.end()) {
      std::vector<std::string> names;
      std::string list;
      for (const GgufPreTokenizer& k : kGgufPreTokenizers) {
        names.emplace_back(k.name);
        list += (list.empty() ? "" : ", ") + names.back();
      }
      const std::string near = nearest_name(data_.pre, names);
      return unsupported("pre-tokenizer {} (tokenizer.ggml.pre); Choral knows {}{}", quoted(data_.pre), list,
                         near.empty() ? "" : "; did you mean " + near + "?");
    }
    add_bos_default_ = kind->add_bos;
    if (kind->nfc) parts_.normalizer.steps.push_back({.kind = NormalizerStep::Kind::kUnicode, .form = NormalForm::kNfc});
    auto& steps = parts_.pre_tokenizer.steps;
    for (const std::string_view pattern : kind->splits) {
      if (pattern.empty()) continue;
      PreTokenizerStep step{.kind = PreTokenizerStep::Kind::kSplitRegex};
      CHORAL_TRY(step.regex, Regex::compile(pattern));
      steps.push_back(std::move(step));
    }
    if (kind->single_digits) steps.push_back({.kind = PreTokenizerStep::Kind::kDigits});
    PreTokenizerStep bytes{.kind = PreTokenizerStep::Kind::kByteLevel, .to_chars = false};
    if (kind->gpt2_pattern) {
      CHORAL_TRY(bytes.regex, Regex::compile(kGpt2Pattern));
    }
    steps.push_back(std::move(bytes));

    BpeConfig config;
    config.ignore_merges = kind->ignore_merges;
    config.bytes = true;
    CHORAL_TRY(const auto merges, listed_merges());
    CHORAL_TRY(config.merges, find_merges(parts_.model_vocabulary, merges));
    parts_.decoder.steps.push_back({.kind = DecoderStep::Kind::kByteLevel});
    CHORAL_TRY(parts_.model, BpeModel::create(parts_.model_vocabulary, config));
    return {};
  }

  Result<std::vector<TextPair>> listed_merges() const {
    std::vector<TextPair> merges;
    merges.reserve(data_.merges.size());
    for (const std::string& merge : data_.merges) {
      // The space stands at the first place after a first character: a token itself may begin with one.
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) return corrupt("merge {} ({}) is not two tokens", merges.size(), quoted(merge, 100));
      merges.emplace_back(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
    }
    return merges;
  }

  Status sentence_piece() {
    if (data_.scores.empty()) return corrupt("tokenizer.ggml.scores is missing; model \"llama\" needs it");
    CHORAL_TRY(auto merges, merges_by_score(data_, parts_.model_vocabulary));
    return pieces(std::move(merges), data_.add_space_prefix.value_or(true));
  }

  // SentencePiece's pieces with merges in a list of their own. As the family's tokenizer.json has it, nothing keeps lines apart;
  // llama.cpp does, which is the same as long as no merge is of a line's end and something else.
  Status merged_pieces() {
    if (data_.merges.empty()) return corrupt("tokenizer.ggml.merges is missing; model {} needs it", quoted(data_.model));
    CHORAL_TRY(const auto texts, listed_merges());
    CHORAL_TRY(auto merges, find_merges(parts_.model_vocabulary, texts));
    return pieces(std::move(merges), data_.add_space_prefix.value_or(false));
  }

  // `prefix`: a space before a text.
  Status pieces(std::vector<BpeMerge> merges, bool prefix) {
    add_bos_default_ = true;
    BpeConfig config;
    config.byte_fallback = true;
    config.fuse_unk = true;
    config.merges = std::move(merges);
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      if (type(id) == kUnknown) config.unk_token = data_.tokens[id];
    }
    auto& steps = parts_.normalizer.steps;
    if (prefix) steps.push_back({.kind = NormalizerStep::Kind::kPrepend, .content = "▁"});
    steps.push_back({.kind = NormalizerStep::Kind::kReplaceString, .pattern = " ", .content = "▁"});
    auto& decoder = parts_.decoder.steps;
    decoder.push_back({.kind = DecoderStep::Kind::kReplaceString, .pattern = "▁", .content = " "});
    decoder.push_back({.kind = DecoderStep::Kind::kByteFallback});
    decoder.push_back({.kind = DecoderStep::Kind::kFuse});
    if (prefix) decoder.push_back({.kind = DecoderStep::Kind::kStrip, .character = ' ', .start = 1, .stop = 0});
    CHORAL_TRY(parts_.model, BpeModel::create(parts_.model_vocabulary, config));
    return {};
  }

  Status add_special_tokens() {
    std::vector<AddedToken> added;
    parts_.unused.resize(data_.tokens.size());
    for (size_t id = 0; id < data_.tokens.size(); ++id) {
      const int kind = type(id);
      parts_.unused[id] = kind == kUnused;
      if (kind != kControl && kind != kUserDefined && kind != kUnknown) continue;
      const auto& content = data_.tokens[id];
      const bool of_texts = content == "<unk>" || content == "<s>" || content == "<|endoftext|>";
      added.push_back({.content = content,
                       .rstrip = data_.special_take_space && !of_texts,
                       .normalized = false,
                       .special = kind != kUserDefined});
    }
    CHORAL_RETURN_IF_ERROR(builder_.add_tokens(added, data_.tokens.size()));
    for (const auto& [role, id] : {std::pair("bos_token", data_.bos_id), std::pair("eos_token", data_.eos_id),
                                   std::pair("unk_token", data_.unk_id), std::pair("pad_token", data_.pad_id)}) {
      if (!id) continue;
      if (*id < 0 || *id >= std::ssize(data_.tokens)) {
        return corrupt("the {} has id {} in a vocabulary of {}", role, *id, data_.tokens.size());
      }
      builder_.set_special_token(role, data_.tokens[*id]);
    }
    for (const auto& [role, id] : data_.fill_ids) {
      if (id < 0 || id >= std::ssize(data_.tokens))
        return corrupt("the token {} has id {} in a vocabulary of {}", role, id, data_.tokens.size());
      builder_.set_special_token(role + "_token", data_.tokens[id]);
    }
    Template frame(3);
    frame[1].sequence = true;
    const bool add_bos = data_.add_bos.value_or(add_bos_default_) && data_.bos_id;
    const bool add_eos = data_.add_eos.value_or(false) && data_.eos_id;
    if (add_bos) frame[0].ids.push_back(static_cast<int32_t>(*data_.bos_id));
    if (add_eos) frame[2].ids.push_back(static_cast<int32_t>(*data_.eos_id));
    if (add_bos || add_eos) parts_.templates.push_back(std::move(frame));
    return {};
  }

  const GgufTokenizerData& data_;
  TokenizerBuilder builder_;
  Tokenizer::Parts& parts_;
  bool add_bos_default_ = false;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_gguf(const GgufTokenizerData& data) {
  return GgufReader(data).run().while_("reading the tokenizer of the GGUF file");
}

}  // namespace choral::text
