#include "text/decode_stage.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "text/byte_level.h"
#include "text/decoder.h"
#include "text/find_text.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

class OutputStage final : public DecodeStage {
 public:
  void begin() override {}
  void text(std::string_view part) override { out_->append(part); }
  void end() override {}
  void finish() override {}
  void set_output(std::string* out) override { out_ = out; }

 private:
  std::string* out_ = nullptr;
};

// Makes one token of all.
class FuseStage : public DecodeStage {
 public:
  void begin() override {
    if (!open_) next_->begin();
    open_ = true;
  }
  void end() override {}
  void finish() override {
    if (open_) next_->end();
    open_ = false;
    next_->finish();
  }

 private:
  bool open_ = false;
};

class JoinStage final : public DecodeStage {
 public:
  void begin() override {
    next_->begin();
    if (!first_) next_->text(" ");
    first_ = false;
  }
  void finish() override {
    first_ = true;
    next_->finish();
  }

 private:
  bool first_ = true;
};

// Bytes to UTF-8 with U+FFFD for each maximal broken part; an incomplete character waits.
class ByteLevelStage final : public FuseStage {
 public:
  ByteLevelStage(bool mapped, size_t longest_text) : mapped_(mapped) {
    if (!mapped) token_.reserve(longest_text);
  }

  void text(std::string_view part) override {
    if (mapped_) return bytes(part);
    token_ += part;
  }
  void end() override {
    if (mapped_) return;
    std::string decoded;
    bytes(append_bytes_of_chars(token_, decoded) ? std::string_view(decoded) : std::string_view(token_));
    token_.clear();
  }
  void finish() override {
    if (!open_part_.empty()) next_->text(kReplacement);
    open_part_.clear();
    FuseStage::finish();
  }

 private:
  void bytes(std::string_view part) {
    while (!open_part_.empty() && !part.empty()) {
      open_part_ += part[0];
      const Utf8Step step = check_utf8(open_part_);
      if (step.length) {
        next_->text(open_part_);
      } else if (!step.incomplete) {  // the new byte does not continue it: it begins anew
        next_->text(kReplacement);
        open_part_.clear();
        break;
      } else {
        part.remove_prefix(1);
        continue;
      }
      part.remove_prefix(1);
      open_part_.clear();
    }
    size_t valid = 0;  // part[0, valid) is fine and not yet given out
    for (size_t i = 0; i < part.size();) {
      const Utf8Step step = check_utf8(part.substr(i));
      if (step.length) {
        valid = i += step.length;
        continue;
      }
      if (i > 0) next_->text(part.substr(0, valid));
      if (step.incomplete) {
        open_part_.assign(part.substr(i));
        return;
      }
      next_->text(kReplacement);
      part.remove_prefix(i + step.broken);
      i = valid = 0;
    }
    if (!part.empty()) next_->text(part);
  }

  const bool mapped_;
  std::string token_;
  std::string open_part_;  // at most 3 bytes
};

// Runs of "<0xHH>" tokens. HF decodes a run as a whole: if it is not all valid UTF-8, each of its bytes is one U+FFFD. So a
// run is held until it ends, or until it cannot become valid any more.
class ByteFallbackStage final : public DecodeStage {
 public:
  explicit ByteFallbackStage(size_t longest_text) { token_.reserve(longest_text); }
  void begin() override { token_.clear(); }
  void text(std::string_view part) override { token_ += part; }
  void end() override {
    const int byte = byte_fallback_value(token_);
    if (byte < 0) {
      flush();
      give(token_);
      return;
    }
    if (broken_) return give(kReplacement);
    run_ += static_cast<char>(byte);
    while (checked_ < run_.size()) {
      const Utf8Step step = check_utf8(std::string_view(run_).substr(checked_));
      if (step.length) {
        checked_ += step.length;
      } else if (step.incomplete) {
        break;
      } else {
        broken_ = true;
        for (size_t i = 0; i < run_.size(); ++i) give(kReplacement);
        run_.clear();
        checked_ = 0;
      }
    }
  }
  void finish() override {
    flush();
    next_->finish();
  }

 private:
  void give(std::string_view token) {
    next_->begin();
    next_->text(token);
    next_->end();
  }
  void flush() {
    if (!run_.empty()) {
      if (checked_ == run_.size()) {
        give(run_);
      } else {
        for (size_t i = 0; i < run_.size(); ++i) give(kReplacement);
      }
    }
    run_.clear();
    checked_ = 0;
    broken_ = false;
  }

  std::string token_;
  std::string run_;
  size_t checked_ = 0;   // run_[0, checked_) is valid
  bool broken_ = false;  // this run has been given up: its bytes come out as U+FFFD at once
};

// String replacement within a token that may come in parts: what could begin a match waits.
class ReplaceStage final : public DecodeStage {
 public:
  ReplaceStage(std::string_view pattern, std::string_view content) : pattern_(pattern), content_(content) {}

  void text(std::string_view part) override {
    if (held_.empty() && part.find(pattern_[0]) == std::string_view::npos) return next_->text(part);
    held_ += part;
    size_t done = 0;
    for (size_t at; (at = find_text(held_, pattern_, done)) != std::string::npos; done = at + pattern_.size()) {
      give(done, at);
      if (!content_.empty()) next_->text(content_);
    }
    size_t keep = std::min(held_.size() - done, pattern_.size() - 1);
    while (keep > 0 && !pattern_.starts_with(std::string_view(held_).substr(held_.size() - keep))) --keep;
    give(done, held_.size() - keep);
    held_.erase(0, held_.size() - keep);
  }
  void end() override {
    give(0, held_.size());
    held_.clear();
    next_->end();
  }

 private:
  void give(size_t from, size_t to) {
    if (from < to) next_->text(std::string_view(held_).substr(from, to - from));
  }
  const std::string pattern_, content_;
  std::string held_;
};

class ReplaceRegexStage final : public DecodeStage {
 public:
  ReplaceRegexStage(const DecoderStep& step, size_t longest_text) : step_(step) { token_.reserve(longest_text); }
  void begin() override {
    token_.clear();
    next_->begin();
  }
  void text(std::string_view part) override { token_ += part; }
  void end() override {
    std::string out;
    budget_.extend(token_.size());
    if (!replace_regex(step_, token_, budget_, out).ok()) out = token_;  // over the limit of work: as it is
    next_->text(out);
    next_->end();
  }
  void finish() override {
    budget_ = EncodeBudget(0);
    next_->finish();
  }

 private:
  const DecoderStep& step_;
  EncodeBudget budget_{0};  // of the whole answer
  std::string token_;
};

// Takes up to `start` characters off a token's front and up to `stop` off its end.
class StripStage final : public DecodeStage {
 public:
  explicit StripStage(const DecoderStep& step) : start_(step.start), stop_(step.stop) { append_utf8(step.character, character_); }

  void begin() override {
    to_cut_ = start_;
    trailing_ = 0;
    next_->begin();
  }
  void text(std::string_view part) override {
    while (to_cut_ > 0 && !part.empty()) {
      if (!part.starts_with(character_)) {
        to_cut_ = 0;
        break;
      }
      part.remove_prefix(character_.size());
      --to_cut_;
    }
    if (part.empty()) return;
    size_t tail = 0;  // of `part`, in bytes: copies of the character at its end
    while (stop_ > 0 && tail + character_.size() <= part.size() &&
           part.substr(part.size() - tail - character_.size(), character_.size()) == character_) {
      tail += character_.size();
    }
    if (tail < part.size()) {
      give_trailing(trailing_);
      next_->text(part.substr(0, part.size() - tail));
    }
    trailing_ += tail / character_.size();
    if (trailing_ > stop_) give_trailing(trailing_ - stop_);  // those cannot be among the last `stop_` any more
  }
  void end() override {
    trailing_ = 0;
    next_->end();
  }

 private:
  void give_trailing(size_t count) {
    trailing_ -= count;
    for (; count > 0; --count) next_->text(character_);
  }

  const size_t start_, stop_;
  std::string character_;
  size_t to_cut_ = 0;
  size_t trailing_ = 0;
};

// The replacement character becomes a space, and nothing in the first token.
class MetaspaceStage final : public DecodeStage {
 public:
  explicit MetaspaceStage(const DecoderStep& step) : prepended_(step.prepended) { append_utf8(step.character, replacement_); }

  void text(std::string_view part) override {
    for (size_t at; (at = part.find(replacement_)) != std::string_view::npos; part.remove_prefix(at + replacement_.size())) {
      if (at > 0) next_->text(part.substr(0, at));
      if (!first_ || !prepended_) next_->text(" ");
    }
    if (!part.empty()) next_->text(part);
  }
  void end() override {
    first_ = false;
    next_->end();
  }
  void finish() override {
    first_ = true;
    next_->finish();
  }

 private:
  std::string replacement_;
  const bool prepended_;
  bool first_ = true;
};

class Collector final : public DecodeStage {
 public:
  void begin() override {}
  void text(std::string_view part) override { collected += part; }
  void end() override {}
  void finish() override {}
  std::string collected;
};

}  // namespace

std::unique_ptr<DecodeStage> make_decode_stage(const DecoderStep& step, bool mapped, size_t longest_text) {
  using Kind = DecoderStep::Kind;
  switch (step.kind) {
    case Kind::kByteLevel: return std::make_unique<ByteLevelStage>(mapped, longest_text);
    case Kind::kReplaceString: return make_replace_stage(step.pattern, step.content);
    case Kind::kReplaceRegex: return std::make_unique<ReplaceRegexStage>(step, longest_text);
    case Kind::kByteFallback: return std::make_unique<ByteFallbackStage>(longest_text);
    case Kind::kFuse: return make_fuse_stage();
    case Kind::kStrip: return std::make_unique<StripStage>(step);
    case Kind::kMetaspace: return std::make_unique<MetaspaceStage>(step);
  }
  CHORAL_CHECK(false, "an unknown kind of decoder step");
}

std::unique_ptr<DecodeStage> make_replace_stage(std::string_view pattern, std::string_view content) {
  return std::make_unique<ReplaceStage>(pattern, content);
}
std::unique_ptr<DecodeStage> make_fuse_stage() { return std::make_unique<FuseStage>(); }
std::unique_ptr<DecodeStage> make_join_stage() { return std::make_unique<JoinStage>(); }
std::unique_ptr<DecodeStage> make_output_stage() { return std::make_unique<OutputStage>(); }

std::string strip_token(const DecoderStep& step, std::string_view token) {
  StripStage strip(step);
  Collector collector;
  strip.set_next(&collector);
  strip.begin();
  strip.text(token);
  strip.end();
  return collector.collected;
}

Status replace_regex(const DecoderStep& step, std::string_view token, EncodeBudget& budget, std::string& appended) {
  CHORAL_RETURN_IF_ERROR(budget.grow(token.size(), kDecoderStage));
  size_t done = 0;
  CHORAL_RETURN_IF_ERROR(step.regex->find(token, budget, [&](size_t begin, size_t end) -> Status {
    CHORAL_RETURN_IF_ERROR(budget.grow(step.content.size(), kDecoderStage));
    appended.append(token, done, begin - done).append(step.content);
    done = end;
    return {};
  }));
  appended.append(token, done);
  return {};
}

}  // namespace choral::text
