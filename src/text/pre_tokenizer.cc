#include "text/pre_tokenizer.h"

#include "text/added_tokens.h"
#include "text/byte_level.h"
#include "text/normalizer.h"
#include "text/unicode.h"

namespace choral::text {

const std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Takes the matched and unmatched ranges of one piece in order and gives out its parts, as HF's five behaviours do.
class Splitter {
 public:
  Splitter(const Piece& piece, SplitBehavior behavior, bool invert, std::vector<Piece>& out)
      : piece_(piece), behavior_(behavior), invert_(invert), out_(out) {}

  void match(size_t begin, size_t end) {
    if (begin > done_) range(done_, begin, invert_);
    range(begin, end, !invert_);
    done_ = end;
  }
  void finish() {
    if (done_ < piece_.text.size()) range(done_, piece_.text.size(), invert_);
    if (pending_) give(from_, to_);
  }

 private:
  void give(size_t begin, size_t end) {
    if (begin < end) out_.push_back({piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
  }
  void hold(size_t begin, size_t end) { from_ = begin, to_ = end, pending_ = true; }

  void range(size_t begin, size_t end, bool is_match) {
    bool joins = false;
    switch (behavior_) {
      case SplitBehavior::kIsolated: return give(begin, end);
      case SplitBehavior::kRemoved:
        if (!is_match) give(begin, end);
        return;
      case SplitBehavior::kContiguous: joins = pending_ && is_match == last_match_; break;
      case SplitBehavior::kMergedWithPrevious: joins = pending_ && is_match && !last_match_; break;
      // HF walks backwards: a match joins what follows it unless that is a match too.
      case SplitBehavior::kMergedWithNext: joins = pending_ && last_match_ && !is_match; break;
    }
    if (joins) {
      to_ = end;
    } else {
      if (pending_) give(from_, to_);
      hold(begin, end);
    }
    last_match_ = is_match;
  }

  const Piece piece_;
  const SplitBehavior behavior_;
  const bool invert_;
  std::vector<Piece>& out_;
  size_t done_ = 0;
  size_t from_ = 0, to_ = 0;
  bool pending_ = false;
  bool last_match_ = false;
};

template <class Predicate>
void split_chars(const Piece& piece, SplitBehavior behavior, std::vector<Piece>& out, Predicate matches) {
  Splitter splitter(piece, behavior, false, out);
  for (const char *p = piece.text.data(), *end = p + piece.text.size(); p < end;) {
    const char* from = p;
    if (matches(next_code_point(p))) {
      splitter.match(static_cast<size_t>(from - piece.text.data()), static_cast<size_t>(p - piece.text.data()));
    }
  }
  splitter.finish();
}

void split_string(const Piece& piece, std::string_view pattern, SplitBehavior behavior, bool invert, std::vector<Piece>& out) {
  Splitter splitter(piece, behavior, invert, out);
  for (size_t at = 0; (at = piece.text.find(pattern, at)) != std::string_view::npos; at += pattern.size()) {
    splitter.match(at, at + pattern.size());
  }
  splitter.finish();
}

Status split_regex(const Piece& piece, const Regex& regex, SplitBehavior behavior, bool invert, std::vector<Piece>& out) {
  Splitter splitter(piece, behavior, invert, out);
  CHORAL_RETURN_IF_ERROR(regex.find(piece.text, [&](size_t begin, size_t end) { splitter.match(begin, end); }));
  splitter.finish();
  return {};
}

void metaspace(const PreTokenizerStep& step, const Piece& piece, PieceBuffers& buffers) {
  std::string& text = buffers.rewritten.emplace_back();
  replace_all(piece.text, " ", step.replacement, text);
  const bool wanted = step.prepend == PrependScheme::kAlways || (step.prepend == PrependScheme::kFirst && piece.at_start);
  if (wanted && !text.starts_with(step.replacement)) text.insert(0, step.replacement);
  if (!step.split) {
    buffers.next.push_back({text, piece.at_start});
  } else {
    split_string({text, piece.at_start}, step.replacement, SplitBehavior::kMergedWithNext, false, buffers.next);
  }
}

Status byte_level(const PreTokenizerStep& step, Piece piece, PieceBuffers& buffers) {
  if (step.add_prefix_space && !piece.text.starts_with(' ')) {
    std::string& text = buffers.rewritten.emplace_back(" ");
    text += piece.text;
    piece.text = text;
  }
  const size_t first = buffers.next.size();
  if (step.regex) {
    CHORAL_RETURN_IF_ERROR(split_regex(piece, *step.regex, SplitBehavior::kIsolated, false, buffers.next));
  } else {
    buffers.next.push_back(piece);
  }
  for (size_t i = first; step.to_chars && i < buffers.next.size(); ++i) {
    std::string& text = buffers.rewritten.emplace_back();
    append_byte_chars(buffers.next[i].text, text);
    buffers.next[i].text = text;
  }
  return {};
}

// Runs of word characters and runs of what is neither word nor space: Rust's \w+|[^\w\s]+, whose \w is not Oniguruma's.
void split_words(const Piece& piece, std::vector<Piece>& out) {
  enum Class { kSpace, kWord, kOther };
  size_t begin = 0;
  Class last = kSpace;
  const auto give = [&](size_t end) {
    if (last != kSpace) out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  };
  for (const char *p = piece.text.data(), *end = p + piece.text.size(); p < end;) {
    const auto at = static_cast<size_t>(p - piece.text.data());
    const uint32_t c = next_code_point(p);
    const Class now = is_word_char(c) ? kWord : is_white_space(c) ? kSpace : kOther;
    if (now == last) continue;
    give(at);
    begin = at;
    last = now;
  }
  give(piece.text.size());
}

Status run_step(const PreTokenizerStep& step, const Piece& piece, PieceBuffers& buffers) {
  using Kind = PreTokenizerStep::Kind;
  std::vector<Piece>& out = buffers.next;
  switch (step.kind) {
    case Kind::kSplitRegex: return split_regex(piece, *step.regex, step.behavior, step.invert, out);
    case Kind::kSplitString: return split_string(piece, step.pattern, step.behavior, step.invert, out), Status();
    case Kind::kByteLevel: return byte_level(step, piece, buffers);
    case Kind::kMetaspace: return metaspace(step, piece, buffers), Status();
    case Kind::kDigits: return split_chars(piece, step.behavior, out, is_numeric), Status();
    case Kind::kWhitespace: return split_words(piece, out), Status();
    case Kind::kWhitespaceSplit: return split_chars(piece, SplitBehavior::kRemoved, out, is_white_space), Status();
    case Kind::kPunctuation: return split_chars(piece, step.behavior, out, is_punctuation), Status();
  }
  return {};
}

}  // namespace

Status PreTokenizer::run(PieceBuffers& buffers) const {
  for (const PreTokenizerStep& step : steps) {
    buffers.next.clear();
    for (const Piece& piece : buffers.pieces) CHORAL_RETURN_IF_ERROR(run_step(step, piece, buffers));
    std::swap(buffers.pieces, buffers.next);
  }
  return {};
}

}  // namespace choral::text
