#include "tools/eval/saved_logits.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "io/bounded_reader.h"

namespace choral::tools {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "CHORALKL";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kMostNameBytes = 1024;
constexpr uint32_t kMostPrefix = 1024;
constexpr uint32_t kMostVocab = uint32_t{1} << 26;
constexpr uint32_t kMostWindow = uint32_t{1} << 24;
constexpr uint64_t kRowHeadBytes = 8;
constexpr float kStepsPerNat = 2048;
constexpr float kMostSteps = 65535;
constexpr float kHighestLogprob = 1e-3F;  // 0, but for rounding

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// `count` token ids below `vocab`.
Status read_ids(io::BoundedReader& reader, uint64_t count, uint32_t vocab, std::string_view what, std::vector<int32_t>& ids) {
  const auto size = checked_mul(count, sizeof(uint32_t));
  if (!size || *size > reader.remaining()) {
    return corrupt("{} ends within {}: {} of them, {} bytes left; write it again", reader.file(), what, count,
                   reader.remaining());
  }
  CHORAL_TRY(const auto bytes, reader.take(*size, what));
  ids.resize(count);
  if (!bytes.empty()) std::memcpy(ids.data(), bytes.data(), bytes.size());
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) >= vocab)
      return corrupt("{}: {} hold {}, the vocabulary has {}", reader.file(), what, static_cast<uint32_t>(id), vocab);
  }
  return {};
}

Status in_range(std::string_view file, std::string_view what, uint32_t value, uint32_t least, uint32_t most) {
  if (value >= least && value <= most) return {};
  return corrupt("{}: {} is {}, where {} to {} are possible", file, what, value, least, most);
}

}  // namespace

std::string write_saved_header(const SavedHeader& header) {
  const std::string name = header.name.substr(0, kMostNameBytes);
  const TextWindows& w = header.windows;
  std::string out(kMagic);
  put(out, kVersion);
  put(out, static_cast<uint32_t>(header.vocab));
  put(out, static_cast<uint32_t>(w.window_tokens));
  put(out, static_cast<uint32_t>(w.min_context));
  put(out, static_cast<uint32_t>(name.size()));
  put(out, static_cast<uint32_t>(w.prefix.size()));
  put(out, static_cast<uint64_t>(w.tokens.size()));
  put(out, static_cast<uint64_t>(w.scored()));
  out += name;
  for (const auto* ids : {&w.prefix, &w.tokens}) {
    out.append(reinterpret_cast<const char*>(ids->data()), ids->size() * sizeof(int32_t));
  }
  return out;
}

int64_t saved_row_bytes(int64_t vocab) { return static_cast<int64_t>(kRowHeadBytes) + 2 * vocab; }

void write_saved_row(std::span<const float> logits, const RowScore& score, std::span<char> out) {
  const float top = logits[score.top];
  std::memcpy(out.data(), &score.logprob, sizeof score.logprob);
  std::memcpy(out.data() + 4, &score.top, sizeof score.top);
  char* at = out.data() + kRowHeadBytes;
  for (const float logit : logits) {
    // Written so that −∞ is the most.
    const float below = (top - logit) * kStepsPerNat;
    const auto steps = static_cast<uint16_t>(below < kMostSteps ? std::nearbyint(below) : kMostSteps);
    std::memcpy(at, &steps, sizeof steps);
    at += sizeof steps;
  }
}

Result<SavedLogits> SavedLogits::parse(std::span<const std::byte> bytes, std::string_view file) {
  SavedLogits out;
  out.file_ = file;
  io::BoundedReader reader(bytes, out.file_);
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    return corrupt("{} was not written by choral eval --save-logits", file);
  CHORAL_RETURN_IF_ERROR(reader.skip(kMagic.size(), "magic"));
  CHORAL_TRY(const uint32_t version, reader.u32("version"));
  if (version != kVersion)
    return unsupported("{} has version {}, this program reads {}; write it again with --save-logits", file, version, kVersion);
  CHORAL_TRY(const uint32_t vocab, reader.u32("vocabulary"));
  CHORAL_TRY(const uint32_t window, reader.u32("window_tokens"));
  CHORAL_TRY(const uint32_t min_context, reader.u32("min_context"));
  CHORAL_TRY(const uint32_t name_bytes, reader.u32("the name's length"));
  CHORAL_TRY(const uint32_t prefix, reader.u32("the prefix's length"));
  CHORAL_TRY(const uint64_t tokens, reader.u64("the text's length"));
  CHORAL_TRY(const uint64_t rows, reader.u64("rows"));
  CHORAL_RETURN_IF_ERROR(in_range(file, "the vocabulary", vocab, 1, kMostVocab));
  CHORAL_RETURN_IF_ERROR(in_range(file, "the name's length", name_bytes, 0, kMostNameBytes));
  CHORAL_RETURN_IF_ERROR(in_range(file, "the prefix's length", prefix, 0, kMostPrefix));
  CHORAL_RETURN_IF_ERROR(in_range(file, "window_tokens", window, prefix + 1, kMostWindow));
  CHORAL_RETURN_IF_ERROR(in_range(file, "min_context", min_context, 1, kMostWindow));
  CHORAL_TRY(const auto name, reader.take(name_bytes, "the name"));
  out.header_.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  out.header_.vocab = vocab;
  TextWindows& w = out.header_.windows;
  w.window_tokens = static_cast<int32_t>(window);
  w.min_context = static_cast<int32_t>(min_context);
  CHORAL_RETURN_IF_ERROR(read_ids(reader, prefix, vocab, "the prefix's tokens", w.prefix));
  CHORAL_RETURN_IF_ERROR(read_ids(reader, tokens, vocab, "the text's tokens", w.tokens));
  if (static_cast<uint64_t>(w.scored()) != rows)
    return corrupt("{} says that it has {} rows, but {} of its tokens count", file, rows, w.scored());
  const auto wanted = checked_mul(rows, static_cast<uint64_t>(saved_row_bytes(vocab)));
  if (!wanted || *wanted != reader.remaining()) {
    return corrupt("{} has {} bytes of rows, {} rows of {} tokens take {}: it was cut, or more was written to it; write it again",
                   file, reader.remaining(), rows, vocab, wanted ? fmt::format("{}", *wanted) : "more than any file has");
  }
  out.rows_ = bytes.subspan(reader.offset());
  return out;
}

Status SavedLogits::check_same(int64_t vocab, const TextWindows& windows) const {
  const TextWindows& saved = header_.windows;
  if (vocab != header_.vocab) {
    return invalid_argument("{} is of a vocabulary of {} tokens, this model has {}: they cannot be compared", file_,
                            header_.vocab, vocab);
  }
  if (windows.window_tokens != saved.window_tokens)
    return invalid_argument("{} was written with --ctx-size {}; give the same", file_, saved.window_tokens);
  if (windows.min_context != saved.min_context)
    return invalid_argument("{} was written with --min-context {}; give the same", file_, saved.min_context);
  if (windows.prefix != saved.prefix)
    return invalid_argument("{} is of another tokenizer: it begins texts in another way", file_);
  const auto [own, other] = std::mismatch(windows.tokens.begin(), windows.tokens.end(), saved.tokens.begin(), saved.tokens.end());
  if (own == windows.tokens.end()) return {};
  if (other == saved.tokens.end()) {
    return invalid_argument("{} holds the first {} tokens of this text, which has {}; give --tokens {}", file_,
                            saved.tokens.size(), windows.tokens.size(), saved.tokens.size());
  }
  return invalid_argument("{} is of another text or tokenizer: token {} is {} there and {} here", file_,
                          own - windows.tokens.begin() + 1, *other, *own);
}

std::span<const std::byte> SavedLogits::bytes_of(int64_t first_row, int64_t count) const {
  const int64_t row_bytes = saved_row_bytes(header_.vocab);
  return rows_.subspan(static_cast<size_t>(first_row * row_bytes), static_cast<size_t>(count * row_bytes));
}

Result<RowScore> SavedLogits::read_row(int64_t row, std::span<float> logits) const {
  const auto bytes = bytes_of(row, 1);
  RowScore score;
  std::memcpy(&score.logprob, bytes.data(), sizeof score.logprob);
  std::memcpy(&score.top, bytes.data() + 4, sizeof score.top);
  if (!std::isfinite(score.logprob) || score.logprob > kHighestLogprob)
    return corrupt("{}: row {} has the log-probability {}", file_, row, score.logprob);
  if (score.top < 0 || score.top >= header_.vocab)
    return corrupt("{}: the most likely token of row {} is {}, the vocabulary has {}", file_, row, score.top, header_.vocab);
  for (int64_t i = 0; i < header_.vocab; ++i) {
    uint16_t steps = 0;
    std::memcpy(&steps, bytes.data() + kRowHeadBytes + 2 * i, sizeof steps);
    logits[i] = -static_cast<float>(steps) / kStepsPerNat;
  }
  return score;
}

}  // namespace choral::tools
