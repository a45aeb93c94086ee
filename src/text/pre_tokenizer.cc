#include "text/pre_tokenizer.h"

#include <algorithm>

#include "text/added_tokens.h"
#include "text/byte_level.h"
#include "text/find_text.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace choral::text {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr std::string_view kPreTokenizer = "the pre-tokenizer of the tokenizer";
constexpr uint64_t kStepsPerPiece = 8;

// Takes the matched and unmatched ranges of one piece in order and gives out its parts, as HF's five behaviours do.
template <class Give>
class Splitter {
 public:
  Splitter(const Piece& piece, SplitBehavior behavior, bool invert, Give& give_out)
      : piece_(piece), behavior_(behavior), invert_(invert), give_out_(give_out) {}

  Status match(size_t begin, size_t end) {
    if (begin > done_) CHORAL_RETURN_IF_ERROR(range(done_, begin, invert_));
    done_ = end;
    return range(begin, end, !invert_);
  }
  Status finish() {
    if (done_ < piece_.text.size()) CHORAL_RETURN_IF_ERROR(range(done_, piece_.text.size(), invert_));
    return pending_ ? give(from_, to_) : Status();
  }

 private:
  Status give(size_t begin, size_t end) {
    if (begin >= end) return {};
    return give_out_(Piece{piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
  }

  Status range(size_t begin, size_t end, bool is_match) {
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: return give(begin, end);
      case SplitBehavior::kRemoved: return is_match ? Status() : give(begin, end);
      case SplitBehavior::kContiguous: joins = pending_ && is_match == last_match_; break;
      case SplitBehavior::kMergedWithPrevious: joins = pending_ && is_match && !last_match_; break;
      // HF walks backwards: a match joins what follows it unless that is a match too.
      case SplitBehavior::kMergedWithNext: joins = pending_ && last_match_ && !is_match; break;
    }
    if (joins) {
      to_ = end;
    } else {
      if (pending_) CHORAL_RETURN_IF_ERROR(give(from_, to_));
      from_ = begin, to_ = end, pending_ = true;
    }
    last_match_ = is_match;
    return {};
  }

  const Piece piece_;
  const SplitBehavior behavior_;
  const bool invert_;
  Give& give_out_;
  size_t done_ = 0;
  size_t from_ = 0, to_ = 0;
  bool pending_ = false;
  bool last_match_ = false;
};

template <class Give, class Predicate>
Status split_chars(const Piece& piece, SplitBehavior behavior, Give& give, Predicate matches) {
  Splitter splitter(piece, behavior, false, give);
  for (const char *p = piece.text.data(), *end = p + piece.text.size(); p < end;) {
    const char* from = p;
    if (!matches(next_code_point(p))) continue;
    CHORAL_RETURN_IF_ERROR(splitter.match(from - piece.text.data(), p - piece.text.data()));
  }
  return splitter.finish();
}

template <class Give>
Status split_string(const Piece& piece, std::string_view pattern, SplitBehavior behavior, bool invert, Give& give) {
  Splitter splitter(piece, behavior, invert, give);
  for (size_t at = 0; (at = find_text(piece.text, pattern, at)) != std::string_view::npos; at += pattern.size()) {
    CHORAL_RETURN_IF_ERROR(splitter.match(at, at + pattern.size()));
  }
  return splitter.finish();
}

// Runs of word characters and runs of what is neither word nor space: Rust's \w+|[^\w\s]+, whose \w is not Oniguruma's.
template <class Give>
Status split_words(const Piece& piece, Give& give) {
  enum Class { kSpace, kWord, kOther };
  size_t begin = 0;
  Class last = kSpace;
  const auto give_until = [&](size_t end) {
    return last == kSpace ? Status() : give(Piece{piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  };
  for (const char *p = piece.text.data(), *end = p + piece.text.size(); p < end;) {
    const auto at = static_cast<size_t>(p - piece.text.data());
    const uint32_t c = next_code_point(p);
    const Class now = is_word_char(c) ? kWord : is_white_space(c) ? kSpace : kOther;
    if (now == last) continue;
    CHORAL_RETURN_IF_ERROR(give_until(at));
    begin = at;
    last = now;
  }
  return give_until(piece.text.size());
}

}  // namespace

// The steps as a chain: each hands its parts to the next as it finds them.
class PreTokenizer::Run {
 public:
  Run(const PreTokenizer& pre_tokenizer, EncodeBudget& budget, PreTokenizerScratch& scratch,
      FunctionRef<Status(const Piece&)> give)
      : steps_(pre_tokenizer.steps), budget_(budget), scratch_(scratch), give_(give) {}

  Status from_step(size_t i, const Piece& piece) {
    if (i == steps_.size()) return piece.text.empty() ? Status() : give_(piece);
    using Kind = PreTokenizerStep::Kind;
    const PreTokenizerStep& step = steps_[i];
    CHORAL_RETURN_IF_ERROR(budget_.work(kStepsPerPiece + piece.text.size(), kPreTokenizer));
    auto next = [this, i](const Piece& part) { return from_step(i + 1, part); };
    switch (step.kind) {
      case Kind::kSplitRegex: return split_regex(piece, step, next);
      case Kind::kSplitString: return split_string(piece, step.pattern, step.behavior, step.invert, next);
      case Kind::kByteLevel: return byte_level(i, piece, next);
      case Kind::kMetaspace: return metaspace(i, piece, next);
      case Kind::kDigits: return split_chars(piece, step.behavior, next, is_numeric);
      case Kind::kWhitespace: return split_words(piece, next);
      case Kind::kWhitespaceSplit: return split_chars(piece, SplitBehavior::kRemoved, next, is_white_space);
      case Kind::kPunctuation: return split_chars(piece, step.behavior, next, is_punctuation);
    }
    return {};
  }

 private:
  template <class Give>
  Status split_regex(const Piece& piece, const PreTokenizerStep& step, Give& give) {
    Splitter splitter(piece, step.behavior, step.invert, give);
    CHORAL_RETURN_IF_ERROR(
        step.regex->find(piece.text, budget_, [&](size_t begin, size_t end) { return splitter.match(begin, end); }));
    return splitter.finish();
  }

  template <class Give>
  Status metaspace(size_t i, const Piece& piece, Give& give) {
    const PreTokenizerStep& step = steps_[i];
    std::string& text = scratch_.of_step[i].piece;
    text.clear();
    CHORAL_RETURN_IF_ERROR(replace_all(piece.text, " ", step.replacement, budget_, kPreTokenizer, text));
    const bool wanted = step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && piece.at_start);
    if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
    if (!step.split) return give({text, piece.at_start});
    return split_string({text, piece.at_start}, step.replacement, SplitBehavior::kMergedWithNext, false, give);
  }

  template <class Give>
  Status byte_level(size_t i, Piece piece, Give& give) {
    const PreTokenizerStep& step = steps_[i];
    if (step.add_prefix_space && !piece.text.starts_with(' ')) {
      CHORAL_RETURN_IF_ERROR(budget_.grow(piece.text.size() + 1, kPreTokenizer));
      std::string& text = scratch_.of_step[i].piece;
      text.assign(" ").append(piece.text);
      piece.text = text;
    }
    const auto spelled = [&](const Piece& part) -> Status {
      if (!step.to_chars) return give(part);
      CHORAL_RETURN_IF_ERROR(budget_.grow(2 * part.text.size(), kPreTokenizer));
      std::string& text = scratch_.of_step[i].part;
      text.clear();
      append_byte_chars(part.text, text);
      return give({text, part.at_start});
    };
    return step.regex ? split_regex(piece, step, spelled) : spelled(piece);
  }

  const std::vector<PreTokenizerStep>& steps_;
  EncodeBudget& budget_;
  PreTokenizerScratch& scratch_;
  const FunctionRef<Status(const Piece&)> give_;
};

Status PreTokenizer::run(const Piece& piece, EncodeBudget& budget, PreTokenizerScratch& scratch,
                         FunctionRef<Status(const Piece&)> give) const {
  scratch.of_step.resize(steps.size());
  return Run(*this, budget, scratch, give).from_step(0, piece);
}

bool PreTokenizer::keeps_all_text() const {
  using Kind = PreTokenizerStep::Kind;
  return std::none_of(steps.begin(), steps.end(), [](const PreTokenizerStep& step) {
    return step.kind == Kind::kWhitespace || step.kind == Kind::kWhitespaceSplit || step.behavior == SplitBehavior::kRemoved;
  });
}

}  // namespace choral::text
