// Readers of tokenizer.json's "normalizer", "pre_tokenizer", "decoder" and "post_processor".
#include <algorithm>

#include "base/printable.h"
#include "text/json_fields.h"
#include "text/tokenizer_json.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr int kMaxDepth = 8;
constexpr size_t kMaxSteps = 64;

// "pattern": {"String": …} or {"Regex": …}
struct Pattern {
  std::string literal;
  std::optional<Regex> regex;
};
Result<Pattern> read_pattern(const JsonFields& fields) {
  CHORAL_TRY(const JsonElement element, fields.require("pattern"));
  CHORAL_TRY(const JsonFields pattern, JsonFields::of(element, fields.where()));
  Pattern out;
  if (pattern.find("String")) {
    CHORAL_TRY(out.literal, pattern.string("String"));
    if (out.literal.empty()) return unsupported("{}: an empty pattern", fields.where());
    return out;
  }
  if (!pattern.find("Regex")) return unsupported("{}: a pattern that is neither String nor Regex", fields.where());
  CHORAL_TRY(const std::string_view source, pattern.string("Regex"));
  CHORAL_TRY(out.regex, Regex::compile(source));
  return out;
}

Result<uint32_t> read_character(const JsonFields& fields, std::string_view key) {
  CHORAL_TRY(const std::string_view text, fields.string(key));
  if (text.empty() || utf8_length(static_cast<unsigned char>(text[0])) != text.size()) {
    return fields.wrong(key, "a single character");
  }
  const char* p = text.data();
  return next_code_point(p);
}

Result<SplitBehavior> read_behavior(const JsonFields& fields, std::string_view fallback) {
  CHORAL_TRY(const std::string_view name, fields.string_or("behavior", fallback));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("{}: behavior {}", fields.where(), quoted(name));
}

template <class Step, class Read>
Status read_sequence(const JsonFields& fields, std::string_view key, std::vector<Step>& steps, int depth, Read read) {
  if (depth >= kMaxDepth) return too_large("{}: sequences nested more than {} deep", fields.where(), kMaxDepth);
  CHORAL_TRY(const simdjson::dom::array list, fields.array(key));
  for (const JsonElement item : list) {
    CHORAL_RETURN_IF_ERROR(read(item, steps, depth + 1));
    if (steps.size() > kMaxSteps) return too_large("{}: more than {} steps", fields.where(), kMaxSteps);
  }
  return {};
}

Result<PrependScheme> read_prepend_scheme(const JsonFields& fields) {
  CHORAL_TRY(const std::string_view name, fields.string_or("prepend_scheme", "always"));
  PrependScheme scheme;
  if (name == "always") {
    scheme = PrependScheme::kAlways;
  } else if (name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else {
    return unsupported("{}: prepend_scheme {}", fields.where(), quoted(name));
  }
  CHORAL_TRY(const bool add, fields.boolean_or("add_prefix_space", true));  // the older spelling
  if (!add && scheme != PrependScheme::kNever && fields.find("prepend_scheme")) {
    return corrupt("{}: add_prefix_space is false and prepend_scheme is {}", fields.where(), quoted(name));
  }
  return add ? scheme : PrependScheme::kNever;
}

Status read_byte_level(const JsonFields& fields, PreTokenizerStep& step) {
  step.kind = PreTokenizerStep::Kind::kByteLevel;
  CHORAL_TRY(step.add_prefix_space, fields.boolean_or("add_prefix_space", true));
  CHORAL_TRY(const bool use_regex, fields.boolean_or("use_regex", true));
  if (use_regex) {
    CHORAL_TRY(step.regex, Regex::compile(kGpt2Pattern));
  }
  return {};
}

Status read_template_processing(const JsonFields& fields, std::vector<Template>& templates) {
  CHORAL_TRY(const simdjson::dom::array single, fields.array("single"));
  CHORAL_TRY(const JsonElement special_element, fields.require("special_tokens"));
  CHORAL_TRY(const JsonFields specials, JsonFields::of(special_element, "post_processor.special_tokens"));
  Template out;
  for (const JsonElement piece_element : single) {
    CHORAL_TRY(const JsonFields piece, JsonFields::of(piece_element, "post_processor.single"));
    TemplateItem item;
    if (const auto sequence = piece.find("Sequence")) {
      CHORAL_TRY(const JsonFields sequence_fields, JsonFields::of(*sequence, "post_processor.single"));
      CHORAL_TRY(const std::string_view id, sequence_fields.string("id"));
      if (id != "A") return corrupt("post_processor: the template of a single text names sequence {}", quoted(id));
      item.sequence = true;
    } else {
      CHORAL_TRY(const JsonElement special, piece.require("SpecialToken"));
      CHORAL_TRY(const JsonFields special_fields, JsonFields::of(special, "post_processor.single"));
      CHORAL_TRY(const std::string_view name, special_fields.string("id"));
      CHORAL_TRY(const JsonElement entry_element, specials.require(name));
      CHORAL_TRY(const JsonFields entry, JsonFields::of(entry_element, "post_processor.special_tokens"));
      CHORAL_TRY(const simdjson::dom::array ids, entry.array("ids"));
      for (const JsonElement element : ids) {
        int64_t id;
        if (element.get(id) || id < 0 || id >= kMaxVocabulary) return corrupt("post_processor: {} has a bad id", quoted(name));
        item.ids.push_back(static_cast<int32_t>(id));
        if (item.ids.size() > kMaxSteps) return too_large("post_processor: {} has more than {} ids", quoted(name), kMaxSteps);
      }
    }
    out.push_back(std::move(item));
    if (out.size() > kMaxSteps) return too_large("post_processor: more than {} parts", kMaxSteps);
  }
  if (std::count_if(out.begin(), out.end(), [](const TemplateItem& i) { return i.sequence; }) > 1) {
    return unsupported("post_processor: a template that repeats the text");
  }
  templates.push_back(std::move(out));
  return {};
}

// BertProcessing and RobertaProcessing: "cls" text "sep", each ["[CLS]", id].
Status read_cls_sep(const JsonFields& fields, std::vector<Template>& templates) {
  Template out(3);
  out[1].sequence = true;
  for (const auto& [key, item] : {std::make_pair("cls", &out[0]), std::make_pair("sep", &out[2])}) {
    CHORAL_TRY(const simdjson::dom::array pair, fields.array(key));
    int64_t id;
    if (pair.at(1).get(id) || id < 0 || id >= kMaxVocabulary) return fields.wrong(key, "a pair of token and id");
    item->ids.push_back(static_cast<int32_t>(id));
  }
  templates.push_back(std::move(out));
  return {};
}

}  // namespace

Status read_normalizer(JsonElement element, std::vector<NormalizerStep>& steps, int depth) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, "normalizer"));
  CHORAL_TRY(const std::string_view type, fields.string("type"));
  using Kind = NormalizerStep::Kind;
  if (type == "Sequence") return read_sequence(fields, "normalizers", steps, depth, read_normalizer);
  NormalizerStep step{};
  if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    step.kind = Kind::kUnicode;
    step.form = type == "NFC"    ? NormalForm::kNfc
                : type == "NFD"  ? NormalForm::kNfd
                : type == "NFKC" ? NormalForm::kNfkc
                                 : NormalForm::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = Kind::kLowercase;
  } else if (type == "StripAccents") {
    step.kind = Kind::kStripAccents;
  } else if (type == "Nmt") {
    step.kind = Kind::kNmt;
  } else if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    CHORAL_TRY(step.content, fields.string("prepend"));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    CHORAL_TRY(step.left, fields.boolean_or("strip_left", true));
    CHORAL_TRY(step.right, fields.boolean_or("strip_right", true));
  } else if (type == "Replace") {
    CHORAL_TRY(Pattern pattern, read_pattern(fields));
    CHORAL_TRY(step.content, fields.string("content"));
    step.kind = pattern.regex ? Kind::kReplaceRegex : Kind::kReplaceString;
    step.pattern = std::move(pattern.literal);
    step.regex = std::move(pattern.regex);
  } else {
    return unsupported(
        "normalizer {}; Choral knows NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Nmt, Prepend, Replace, "
        "ByteLevel and Sequence",
        quoted(type));
  }
  steps.push_back(std::move(step));
  return {};
}

Status read_pre_tokenizer(JsonElement element, std::vector<PreTokenizerStep>& steps, int depth) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, "pre_tokenizer"));
  CHORAL_TRY(const std::string_view type, fields.string("type"));
  using Kind = PreTokenizerStep::Kind;
  if (type == "Sequence") return read_sequence(fields, "pretokenizers", steps, depth, read_pre_tokenizer);
  PreTokenizerStep step{};
  if (type == "ByteLevel") {
    CHORAL_RETURN_IF_ERROR(read_byte_level(fields, step));
  } else if (type == "Split") {
    CHORAL_TRY(Pattern pattern, read_pattern(fields));
    CHORAL_TRY(step.behavior, read_behavior(fields, ""));
    CHORAL_TRY(step.invert, fields.boolean_or("invert", false));
    step.kind = pattern.regex ? Kind::kSplitRegex : Kind::kSplitString;
    step.pattern = std::move(pattern.literal);
    step.regex = std::move(pattern.regex);
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    CHORAL_TRY(const uint32_t replacement, read_character(fields, "replacement"));
    step.replacement.clear();
    append_utf8(replacement, step.replacement);
    CHORAL_TRY(step.prepend, read_prepend_scheme(fields));
    CHORAL_TRY(step.split, fields.boolean_or("split", true));
  } else if (type == "Digits") {
    step.kind = Kind::kDigits;
    CHORAL_TRY(const bool individual, fields.boolean_or("individual_digits", false));
    step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Whitespace") {
    step.kind = Kind::kWhitespace;
  } else if (type == "WhitespaceSplit") {
    step.kind = Kind::kWhitespaceSplit;
  } else if (type == "Punctuation") {
    step.kind = Kind::kPunctuation;
    CHORAL_TRY(step.behavior, read_behavior(fields, "Isolated"));
  } else {
    return unsupported(
        "pre-tokenizer {}; Choral knows Split, ByteLevel, Metaspace, Digits, Whitespace, WhitespaceSplit, "
        "Punctuation and Sequence",
        quoted(type));
  }
  steps.push_back(std::move(step));
  return {};
}

Status read_decoder(JsonElement element, std::vector<DecoderStep>& steps, int depth) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, "decoder"));
  CHORAL_TRY(const std::string_view type, fields.string("type"));
  using Kind = DecoderStep::Kind;
  if (type == "Sequence") return read_sequence(fields, "decoders", steps, depth, read_decoder);
  DecoderStep step{};
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Replace") {
    CHORAL_TRY(Pattern pattern, read_pattern(fields));
    CHORAL_TRY(step.content, fields.string("content"));
    step.kind = pattern.regex ? Kind::kReplaceRegex : Kind::kReplaceString;
    step.pattern = std::move(pattern.literal);
    step.regex = std::move(pattern.regex);
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    CHORAL_TRY(step.character, read_character(fields, "content"));
    CHORAL_TRY(const int64_t start, fields.integer("start"));
    CHORAL_TRY(const int64_t stop, fields.integer("stop"));
    if (start < 0 || stop < 0 || start > 1000 || stop > 1000)
      return corrupt("decoder: Strip of {} and {} characters", start, stop);
    step.start = static_cast<size_t>(start);
    step.stop = static_cast<size_t>(stop);
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    CHORAL_TRY(step.character, read_character(fields, "replacement"));
    CHORAL_TRY(const PrependScheme scheme, read_prepend_scheme(fields));
    step.prepended = scheme != PrependScheme::kNever;
  } else {
    return unsupported("decoder {}; Choral knows ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence",
                       quoted(type));
  }
  steps.push_back(std::move(step));
  return {};
}

// What the steps together may make of a byte: the vocabulary is decoded on a budget at load, but what answers grow to is bounded
// only here.
Status check_decoder(const std::vector<DecoderStep>& steps) {
  constexpr size_t kMaxGrowth = 1024, kMaxPattern = 4096;
  size_t growth = 1;
  for (const DecoderStep& step : steps) {
    using Kind = DecoderStep::Kind;
    if (step.pattern.size() > kMaxPattern) return too_large("decoder: a pattern of more than {} bytes", kMaxPattern);
    if (step.kind == Kind::kReplaceString)
      growth *= std::max<size_t>(1, step.content.size() / step.pattern.size() + (step.content.size() % step.pattern.size() != 0));
    if (step.kind == Kind::kReplaceRegex) growth *= 1 + step.content.size();  // an empty match may stand before each byte
    if (growth > kMaxGrowth) return too_large("decoder: the replacements make more than {} bytes of one", kMaxGrowth);
  }
  return {};
}

Status read_post_processor(JsonElement element, std::vector<Template>& templates, int depth) {
  CHORAL_TRY(const JsonFields fields, JsonFields::of(element, "post_processor"));
  CHORAL_TRY(const std::string_view type, fields.string("type"));
  if (type == "Sequence") return read_sequence(fields, "processors", templates, depth, read_post_processor);
  if (type == "ByteLevel") return {};  // it moves offsets only
  if (type == "TemplateProcessing") return read_template_processing(fields, templates);
  if (type == "BertProcessing" || type == "RobertaProcessing") return read_cls_sep(fields, templates);
  return unsupported(
      "post-processor {}; Choral knows TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence",
      quoted(type));
}

}  // namespace choral::text
