// tokenizer.json -> what GGUF metadata says: tokenizer_gguf.cc backwards.
#include <algorithm>
#include <map>
#include <set>

#include "base/printable.h"
#include "text/gguf_tokenizer.h"
#include "text/json_fields.h"
#include "text/tokenizer_json.h"

namespace choral::text {
namespace {

// What tokenizer.json says of normalizer and pre-tokenizer in GGUF's terms; nothing: it says something else.
struct Stages {
  std::vector<std::string> splits;
  bool single_digits = false, bytes = false, gpt2_pattern = false, nfc = false, ignore_merges = false;

  bool operator==(const GgufPreTokenizer& kind) const {
    const auto end = std::find(kind.splits.begin(), kind.splits.end(), std::string_view());
    return std::equal(splits.begin(), splits.end(), kind.splits.begin(), end) && single_digits == kind.single_digits &&
           gpt2_pattern == kind.gpt2_pattern && nfc == kind.nfc && ignore_merges == kind.ignore_merges;
  }
};

// The steps of a stage, those of a Sequence one by one. `list` is how the Sequence calls them.
Result<std::vector<JsonFields>> steps_of(const JsonFields& root, std::string_view stage, std::string_view list) {
  std::vector<JsonFields> steps;
  const auto element = root.find(stage);
  if (!element) return steps;
  CHORAL_TRY(const JsonFields fields, JsonFields::of(*element, stage));
  CHORAL_TRY(const std::string_view type, fields.string("type"));
  if (type != "Sequence") return std::vector{fields};
  CHORAL_TRY(const simdjson::dom::array members, fields.array(list));
  for (const JsonElement member : members) {
    CHORAL_TRY(const JsonFields step, JsonFields::of(member, stage));
    steps.push_back(step);
  }
  return steps;
}

// DeepSeek's files write a quotation mark as \", which is the same.
std::string without_escaped_quotes(std::string_view regex) {
  std::string out;
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex.substr(i, 2) == "\\\"") continue;
    out += regex[i];
    if (regex[i] == '\\' && i + 1 < regex.size()) out += regex[++i];
  }
  return out;
}

// Null where a step is none of those that GGUF's names stand for.
Result<std::optional<Stages>> byte_level_stages(const JsonFields& root, const JsonFields& model) {
  const std::optional<Stages> none;
  Stages stages;
  CHORAL_TRY(stages.ignore_merges, model.boolean_or("ignore_merges", false));
  CHORAL_TRY(const auto normalizers, steps_of(root, "normalizer", "normalizers"));
  for (const JsonFields& step : normalizers) {
    CHORAL_TRY(const auto type, step.string("type"));
    if (type != "NFC" || stages.nfc) return none;
    stages.nfc = true;
  }
  CHORAL_TRY(const auto steps, steps_of(root, "pre_tokenizer", "pretokenizers"));
  for (const JsonFields& step : steps) {
    CHORAL_TRY(const auto type, step.string("type"));
    if (stages.bytes) return none;
    if (type == "Split") {
      CHORAL_TRY(const auto behavior, step.string("behavior"));
      CHORAL_TRY(const bool invert, step.boolean_or("invert", false));
      CHORAL_TRY(const JsonElement pattern, step.require("pattern"));
      CHORAL_TRY(const JsonFields how, JsonFields::of(pattern, "pattern"));
      if (behavior != "Isolated" || invert || !how.find("Regex") || stages.single_digits) return none;
      CHORAL_TRY(const auto regex, how.string("Regex"));
      stages.splits.push_back(without_escaped_quotes(regex));
    } else if (type == "Digits") {
      CHORAL_TRY(stages.single_digits, step.boolean_or("individual_digits", false));
      if (!stages.single_digits) return none;
    } else if (type == "ByteLevel") {
      CHORAL_TRY(const bool prefix, step.boolean_or("add_prefix_space", true));
      CHORAL_TRY(stages.gpt2_pattern, step.boolean_or("use_regex", true));
      if (prefix) return none;
      stages.bytes = true;
    } else {
      return none;
    }
  }
  return stages.bytes ? std::optional(stages) : none;
}

// Gemma's splits at spaces, of which its normalizer leaves none.
Result<bool> splits_nothing(const JsonFields& root) {
  CHORAL_TRY(const auto steps, steps_of(root, "pre_tokenizer", "pretokenizers"));
  for (const JsonFields& step : steps) {
    CHORAL_TRY(const auto type, step.string("type"));
    if (type != "Split") return false;
    CHORAL_TRY(const JsonElement pattern, step.require("pattern"));
    CHORAL_TRY(const JsonFields how, JsonFields::of(pattern, "pattern"));
    CHORAL_TRY(const auto text, how.string_or("String", ""));
    if (text != " ") return false;
  }
  return true;
}

// "▁" put before a text and in place of its spaces, by the normalizer: what GGUF's model "llama" does.
Result<bool> is_sentence_piece(const JsonFields& root, const JsonFields& model) {
  CHORAL_TRY(const bool byte_fallback, model.boolean_or("byte_fallback", false));
  CHORAL_TRY(const auto normalizers, steps_of(root, "normalizer", "normalizers"));
  CHORAL_TRY(const bool whole, splits_nothing(root));
  if (!byte_fallback || !whole || normalizers.empty()) return false;
  CHORAL_TRY(const auto last, normalizers.back().string("type"));
  if (last != "Replace" || normalizers.size() > 2) return false;
  CHORAL_TRY(const auto content, normalizers.back().string("content"));
  CHORAL_TRY(const auto first, normalizers.front().string("type"));
  return content == "▁" && (normalizers.size() == 1 || first == "Prepend");
}

class Translation {
 public:
  Translation(const Tokenizer& tokenizer, const JsonFields& root) : tokenizer_(tokenizer), root_(root) {}

  Result<GgufTokenizerData> run() {
    CHORAL_TRY(const JsonElement model_element, root_.require("model"));
    CHORAL_TRY(const JsonFields model, JsonFields::of(model_element, "model"));
    if (!model.find("merges")) return unsupported("GGUF files are written of BPE tokenizers; this one has no merges");
    CHORAL_TRY(const simdjson::dom::array list, model.array("merges"));
    CHORAL_TRY(const auto merges, read_merges(list));
    CHORAL_RETURN_IF_ERROR(add_tokens());
    CHORAL_TRY(const auto stages, byte_level_stages(root_, model));
    CHORAL_TRY(const bool sentence_piece, is_sentence_piece(root_, model));
    if (stages) {
      CHORAL_RETURN_IF_ERROR(byte_level(*stages, merges));
    } else if (sentence_piece) {
      CHORAL_RETURN_IF_ERROR(by_scores(model, merges));
    } else {
      return unsupported(
          "the normalizer and pre_tokenizer of tokenizer.json are none that GGUF has a name for; use the folder as it is, or "
          "another format");
    }
    CHORAL_RETURN_IF_ERROR(add_ends());
    const auto templates = tokenizer_.chat_templates();
    out_.chat_templates.assign(templates.begin(), templates.end());
    CHORAL_RETURN_IF_ERROR(check_read_back());
    return std::move(out_);
  }

 private:
  Status add_tokens() {
    std::set<int32_t> added;
    if (root_.find("added_tokens")) {
      CHORAL_TRY(const simdjson::dom::array list, root_.array("added_tokens"));
      CHORAL_TRY(const auto tokens, read_added_tokens(list));
      for (const AddedToken& token : tokens) {
        if (token.lstrip || token.rstrip || token.single_word) {
          return unsupported("the added token {} looks at what stands beside it, for which GGUF has no word",
                             quoted(token.content, 100));
        }
        if (const auto id = tokenizer_.token_to_id(token.content)) added.insert(*id);
      }
    }
    for (int32_t id = 0; id < tokenizer_.vocab_size(); ++id) {
      const auto token = tokenizer_.id_to_token(id);
      out_.tokens.push_back(token ? std::string(*token) : fmt::format("[PAD{}]", id));
      out_.token_types.push_back(!token                      ? kUnused
                                 : tokenizer_.is_special(id) ? kControl
                                 : added.contains(id)        ? kUserDefined
                                                             : kNormal);
    }
    return {};
  }

  Status byte_level(const Stages& stages, std::span<const TextPair> merges) {
    const auto kind = std::find(kGgufPreTokenizers.begin(), kGgufPreTokenizers.end(), stages);
    if (kind == kGgufPreTokenizers.end()) {
      return unsupported("the pre_tokenizer of tokenizer.json splits texts in a way that GGUF has no name for{}",
                         stages.splits.empty() ? "" : ": " + quoted(stages.splits.front(), 200));
    }
    out_.model = "gpt2";
    out_.pre = kind->name;
    for (const auto& [left, right] : merges) out_.merges.push_back(fmt::format("{} {}", left, right));
    return {};
  }

  // Which merge comes first is said by scores of what it makes.
  Status by_scores(const JsonFields& model, std::span<const TextPair> merges) {
    out_.model = "llama";
    CHORAL_TRY(const auto normalizers, steps_of(root_, "normalizer", "normalizers"));
    out_.add_space_prefix = normalizers.size() == 2;
    CHORAL_TRY(const auto unknown, model.string_or("unk_token", ""));
    out_.scores.assign(out_.tokens.size(), -static_cast<float>(merges.size()));
    std::vector<bool> scored(out_.tokens.size());
    for (size_t i = 0; i < merges.size(); ++i) {
      const auto id = tokenizer_.token_to_id(std::string(merges[i].first) + std::string(merges[i].second));
      if (!id || scored[*id]) continue;
      scored[*id] = true;
      out_.scores[*id] = -static_cast<float>(i);
    }
    Vocabulary vocabulary;
    for (size_t id = 0; id < out_.tokens.size(); ++id) {
      if (out_.tokens[id] == unknown) out_.token_types[id] = kUnknown;
      if (out_.token_types[id] == kNormal && is_byte(out_.tokens[id])) out_.token_types[id] = kByte;
      if (out_.token_types[id] != kNormal) out_.scores[id] = 0;
      CHORAL_RETURN_IF_ERROR(vocabulary.add(out_.tokens[id], static_cast<int64_t>(id)));
    }
    CHORAL_RETURN_IF_ERROR(vocabulary.finish());
    CHORAL_TRY(const auto said, merges_by_score(out_, vocabulary));
    CHORAL_TRY(const auto wanted, find_merges(vocabulary, merges));
    if (said == wanted) return {};
    if (!*out_.add_space_prefix) return by_merges(merges);
    return unsupported("the merges of tokenizer.json follow no scores of tokens, which is how GGUF says their order");
  }

  // The same stages with the merges listed, as Gemma 4's files have them.
  Status by_merges(std::span<const TextPair> merges) {
    out_.model = "gemma4";
    out_.scores.clear();
    for (const auto& [left, right] : merges) out_.merges.push_back(fmt::format("{} {}", left, right));
    return {};
  }

  static bool is_byte(std::string_view token) { return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>'); }

  Status add_ends() {
    const auto id_of = [&](std::string_view role) -> std::optional<int64_t> { return tokenizer_.special_id(role); };
    out_.bos_id = id_of("bos");
    out_.eos_id = id_of("eos");
    out_.unk_id = id_of("unk");
    out_.pad_id = id_of("pad");
    CHORAL_TRY(const auto plain, tokenizer_.encode("a", {.add_special_tokens = false}));
    CHORAL_TRY(const auto whole, tokenizer_.encode("a"));
    const auto text = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
    const auto before = text - whole.begin(), after = whole.end() - text - std::ssize(plain);
    out_.add_bos = before == 1 && whole.front() == out_.bos_id;
    out_.add_eos = after == 1 && whole.back() == out_.eos_id;
    if (text != whole.end() && before == *out_.add_bos && after == *out_.add_eos) return {};
    return unsupported("the tokenizer puts {} tokens around a text; GGUF can say the beginning's and the end's one",
                       whole.size() - plain.size());
  }

  // What a reader makes of it gives the same ids and texts.
  Status check_read_back() const {
    CHORAL_TRY(const auto again, Tokenizer::from_gguf(out_));
    std::vector<std::string> texts{
        "Hello, world! It's 3:45pm; I'd've said 1234567.89 isn't 10% of  that…\n\n\tdef f(x):\n    return x\r\n",
        " Zwölf Boxkämpfer jagen Éric, naïve café cafe\u0301; Ελληνικά, Привет, мир! שלום عليكم नमस्ते ไทย",
        "漢字かな交じり文。你好，世界！ 한국어 텍스트입니다 🙂👩‍👩‍👧 ∑∫ ½ "
        "①\u00a0\u200b_x__Y-- "
        "//* "
        "*/",
        "   ",
        "\n",
        "a"};
    for (int32_t id = 0, special = 0; id < tokenizer_.vocab_size() && special < 4; ++id) {
      if (!tokenizer_.is_special(id)) continue;
      ++special;
      texts.push_back(fmt::format("before {} after", *tokenizer_.id_to_token(id)));
    }
    for (const auto& text : texts) {
      CHORAL_TRY(const auto ids, tokenizer_.encode(text));
      CHORAL_TRY(const auto again_ids, again->encode(text));
      if (ids != again_ids || tokenizer_.decode(ids) != again->decode(ids)) {
        return unsupported("what GGUF can say of the tokenizer would read {} in another way", quoted(text, 100));
      }
    }
    return {};
  }

  const Tokenizer& tokenizer_;
  const JsonFields& root_;
  GgufTokenizerData out_;
};

}  // namespace

Result<GgufTokenizerData> gguf_tokenizer_data(const Tokenizer& tokenizer, std::string_view tokenizer_json) {
  simdjson::dom::parser parser;
  CHORAL_TRY(const JsonElement root, parse_json(parser, tokenizer_json));
  CHORAL_TRY(const JsonFields fields, JsonFields::of(root, "tokenizer.json"));
  return Translation(tokenizer, fields).run();
}

}  // namespace choral::text
