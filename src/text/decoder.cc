#include "text/decoder.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "text/byte_level.h"
#include "text/decode_stage.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

// A Replace step on one token.
Result<std::string> replaced(const DecoderStep& step, std::string_view token, EncodeBudget& budget) {
  std::string out;
  if (step.kind == DecoderStep::Kind::kReplaceRegex) {
    CHORAL_RETURN_IF_ERROR(replace_regex(step, token, budget, out));
  } else {
    CHORAL_RETURN_IF_ERROR(replace_all(token, step.pattern, step.content, budget, kDecoderStage, out));
  }
  return out;
}

bool looks_at_one_token(const DecoderStep& step) {
  using Kind = DecoderStep::Kind;
  return step.kind == Kind::kReplaceString || step.kind == Kind::kReplaceRegex || step.kind == Kind::kStrip;
}

}  // namespace

int byte_fallback_value(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = hex_digit(c);
    // Rust's from_str_radix, which HF uses, also takes a leading '+': "<0x+A>" is 10 there.
    if (digit < 0 && !(c == '+' && &c == &token[3] && token[4] != '+')) return -1;
    value = value * 16 + std::max(digit, 0);
  }
  return value;
}

void DecoderSpec::plan() {
  steps_done_at_load = 0;
  while (steps_done_at_load < steps.size() && looks_at_one_token(steps[steps_done_at_load])) ++steps_done_at_load;
  tokens_are_bytes = steps_done_at_load < steps.size() && steps[steps_done_at_load].kind == DecoderStep::Kind::kByteLevel;
}

Result<std::string> DecoderSpec::token_text(std::string_view token, EncodeBudget& budget) const {
  std::string text(token);
  for (size_t i = 0; i < steps_done_at_load; ++i) {
    const DecoderStep& step = steps[i];
    if (step.kind == DecoderStep::Kind::kStrip) {
      text = strip_token(step, text);
    } else {
      CHORAL_TRY(text, replaced(step, text, budget));
    }
  }
  if (tokens_are_bytes) {
    std::string bytes;
    if (append_bytes_of_chars(text, bytes)) return bytes;
  }
  return text;
}

Result<std::string> DecoderSpec::token_bytes(std::string text, EncodeBudget& budget) const {
  using Kind = DecoderStep::Kind;
  bool fused = false;
  for (size_t i = steps_done_at_load + (tokens_are_bytes ? 1 : 0); i < steps.size(); ++i) {
    const DecoderStep& step = steps[i];
    std::string next;
    switch (step.kind) {
      case Kind::kReplaceString:
      case Kind::kReplaceRegex: {
        CHORAL_TRY(next, replaced(step, text, budget));
        break;
      }
      case Kind::kStrip:
        if (fused) continue;
        next = strip_token(step, text);
        break;
      case Kind::kByteLevel:
        if (!append_bytes_of_chars(text, next)) continue;
        break;
      case Kind::kByteFallback:
        if (const int byte = byte_fallback_value(text); byte >= 0) return std::string(1, static_cast<char>(byte));
        continue;
      case Kind::kFuse: fused = true; continue;
      case Kind::kMetaspace: {
        std::string replacement;
        append_utf8(step.character, replacement);
        CHORAL_RETURN_IF_ERROR(replace_all(text, replacement, " ", budget, kDecoderStage, next));
        break;
      }
    }
    text = std::move(next);
  }
  return text;
}

DecodeStream::DecodeStream(const DecoderSpec& spec) {
  for (size_t i = spec.steps_done_at_load; i < spec.steps.size(); ++i) {
    const bool mapped = spec.tokens_are_bytes && i == spec.steps_done_at_load;
    stages_.push_back(make_decode_stage(spec.steps[i], mapped, spec.longest_text));
  }
  if (spec.joins_with_spaces) stages_.push_back(make_join_stage());
  if (spec.clean_up) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kRules = {{{" .", "."},
                                                                                       {" ?", "?"},
                                                                                       {" !", "!"},
                                                                                       {" ,", ","},
                                                                                       {" ' ", "'"},
                                                                                       {" n't", "n't"},
                                                                                       {" 'm", "'m"},
                                                                                       {" 's", "'s"},
                                                                                       {" 've", "'ve"},
                                                                                       {" 're", "'re"}}};
    stages_.push_back(make_fuse_stage());
    for (const auto& [pattern, content] : kRules) stages_.push_back(make_replace_stage(pattern, content));
  }
  stages_.push_back(make_output_stage());
  for (size_t i = 0; i + 1 < stages_.size(); ++i) stages_[i]->set_next(stages_[i + 1].get());
}

DecodeStream::~DecodeStream() = default;

void DecodeStream::push(std::string_view token_text, std::string& out) {
  stages_.back()->set_output(&out);
  stages_.front()->begin();
  stages_.front()->text(token_text);
  stages_.front()->end();
}

void DecodeStream::finish(std::string& out) {
  stages_.back()->set_output(&out);
  stages_.front()->finish();
}

}  // namespace choral::text
