#include "serve/openai/resume_token.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/sha256.h"
#include "base/status.h"

namespace choral::serve {
namespace {

// Bytes of a piece: its kind, its numbers (LEB128), and a check over these and, but for the first piece, over the first one. In a
// text they are hexadecimal.
constexpr uint8_t kOriginPiece = 1, kTokensPiece = 2;
constexpr size_t kCheckBytes = 4;
constexpr size_t kDigestDigits = 16;
constexpr uint64_t kMostCompletions = 128, kMostAdapters = 64;
constexpr char kPieceEnd = '.';

std::string check_of(std::string_view head, std::string_view bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(head)));
  hash.update(std::as_bytes(std::span(bytes)));
  const Sha256Digest digest = hash.finish();
  return {digest.begin(), digest.begin() + kCheckBytes};
}

void put_number(uint64_t value, std::string& out) {
  constexpr uint64_t kLow = 0x7F, kMore = 0x80;
  for (; value > kLow; value >>= 7U) out += static_cast<char>((value & kLow) | kMore);
  out += static_cast<char>(value);
}

void put_text(std::string_view text, std::string& out) {
  put_number(text.size(), out);
  out += text;
}

std::string hex_of(std::string_view bytes) { return to_hex({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}); }

std::string piece_text(std::string_view head, const std::string& bytes) {
  return hex_of(bytes + check_of(head, bytes)) + kPieceEnd;
}

std::string origin_bytes(const ResumeOrigin& origin) {
  std::string bytes(1, static_cast<char>(kOriginPiece));
  put_text(origin.fingerprint, bytes);
  put_number(origin.seed, bytes);
  put_text(origin.prompt, bytes);
  put_number(origin.adapters.size(), bytes);
  for (const auto& digest : origin.adapters) put_text(digest, bytes);
  return bytes;
}

// None: not as to_hex() writes it.
std::optional<std::string> bytes_of(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(hex_digit(hex[i]) * 16 + hex_digit(hex[i + 1]));
  }
  return hex_of(bytes) == hex ? std::optional(std::move(bytes)) : std::nullopt;
}

// The numbers of a piece, one behind the other. What is not there makes it bad.
class PieceReader {
 public:
  explicit PieceReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t number(uint64_t most = std::numeric_limits<uint64_t>::max()) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7FU) << shift;
      if (byte <= 0x7F) return value <= most ? value : fail();
    }
    return fail();
  }
  std::string text() {
    const uint64_t size = number(rest_.size());
    if (size > rest_.size()) return fail(), "";
    std::string out(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return out;
  }
  size_t left() const { return rest_.size(); }
  bool is_whole() const { return is_good_ && rest_.empty(); }
  bool is_good() const { return is_good_; }

 private:
  uint64_t fail() {
    is_good_ = false;
    rest_ = {};
    return 0;
  }

  std::string_view rest_;
  bool is_good_ = true;
};

std::optional<ResumeOrigin> read_origin(std::string_view bytes) {
  PieceReader in(bytes);
  ResumeOrigin origin;
  if (in.number() != kOriginPiece) return std::nullopt;
  origin.fingerprint = in.text();
  origin.seed = in.number();
  origin.prompt = in.text();
  for (uint64_t i = in.number(kMostAdapters); i > 0 && in.is_good(); --i) origin.adapters.push_back(in.text());
  return in.is_whole() ? std::optional(std::move(origin)) : std::nullopt;
}

Status add_tokens(std::string_view bytes, size_t place, std::vector<GivenAnswer>& given) {
  PieceReader in(bytes);
  const uint64_t kind = in.number(), index = in.number(kMostCompletions - 1), begin = in.number(), ended = in.number(1);
  std::vector<int32_t> ids;
  while (in.is_good() && in.left() > 0) ids.push_back(static_cast<int32_t>(in.number(std::numeric_limits<int32_t>::max())));
  if (kind != kTokensPiece || !in.is_whole())
    return invalid_argument("'resume': piece {} is none of this server's version; begin the answer again", place);
  if (index >= given.size()) given.resize(index + 1);
  GivenAnswer& answer = given[index];
  if (begin > answer.token_ids.size()) {
    return invalid_argument(
        "'resume': before piece {} those with tokens {} to {} of choice {} are missing; send the pieces of all chunks", place,
        answer.token_ids.size(), begin - 1, index);
  }
  if (begin < answer.token_ids.size()) return invalid_argument("'resume': piece {} is there twice, or out of its order", place);
  answer.token_ids.insert(answer.token_ids.end(), ids.begin(), ids.end());
  answer.ended = answer.ended || ended == 1;
  return {};
}

}  // namespace

std::string resume_digest(const std::vector<int32_t>& prompt) {
  return to_hex(sha256(std::as_bytes(std::span(prompt)))).substr(0, kDigestDigits);
}

std::vector<std::string> resume_digests(const std::vector<AnswerAdapter>& adapters) {
  std::vector<std::string> digests;
  for (const auto& adapter : adapters) digests.push_back(adapter.digest.substr(0, kDigestDigits));
  return digests;
}

// Gives where it begins.
size_t ResumeWriter::advance(const StreamEvent& event) {
  const auto index = static_cast<size_t>(event.index);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  return std::exchange(tokens_[index], tokens_[index] + event.token_ids.size());
}

void ResumeWriter::add_given(const StreamEvent& event) {
  if (!goes_on_) return add(event);
  advance(event);
}

void ResumeWriter::add(const StreamEvent& event) {
  const bool ended = event.finish_reason != FinishReason::kNone;
  const size_t begin = advance(event);
  if (ended || !event.token_ids.empty()) news_.push_back({event.index, begin, event.token_ids, ended});
}

std::string ResumeWriter::take(const ResumeOrigin& origin) {
  std::string out;
  if (head_.empty()) {
    head_ = origin_bytes(origin);
    if (!goes_on_) out = piece_text({}, head_);
  }
  for (const News& news : news_) {
    std::string bytes(1, static_cast<char>(kTokensPiece));
    put_number(static_cast<uint64_t>(news.index), bytes);
    put_number(news.begin, bytes);
    put_number(news.ended ? 1 : 0, bytes);
    for (const int32_t id : news.token_ids) put_number(static_cast<uint64_t>(id), bytes);
    out += piece_text(head_, bytes);
  }
  news_.clear();
  return out;
}

Result<ResumeToken> read_resume_token(std::string_view text) {
  ResumeToken token;
  std::string head;
  for (size_t place = 0; !text.empty(); ++place) {
    const size_t end = text.find(kPieceEnd);
    const auto all = end == std::string_view::npos ? std::nullopt : bytes_of(text.substr(0, end));
    if (!all || all->size() <= kCheckBytes)
      return invalid_argument("'resume': piece {} is cut off or none; send what the chunks' `resume` said, one behind the other",
                              place);
    text.remove_prefix(end + 1);
    const std::string bytes = all->substr(0, all->size() - kCheckBytes);
    if (check_of(head, bytes) != all->substr(bytes.size())) {
      return invalid_argument(
          "'resume': piece {} is damaged, or of another answer; send the pieces of one answer as they came, from the first on",
          place);
    }
    if (place == 0) {
      auto origin = read_origin(bytes);
      if (!origin) return invalid_argument("'resume' does not begin with the first piece of an answer, or is of another version");
      token.origin = *std::move(origin);
      head = bytes;
    } else {
      CHORAL_RETURN_IF_ERROR(add_tokens(bytes, place, token.given));
    }
  }
  if (head.empty()) return invalid_argument("'resume' is empty; leave it out, or send what the chunks' `resume` said");
  return token;
}

}  // namespace choral::serve
