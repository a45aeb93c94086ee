#include "text/unigram_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/printable.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr uint64_t kStepsPerByte = 4;

}  // namespace

Result<std::unique_ptr<UnigramModel>> UnigramModel::create(const Vocabulary& vocabulary, std::vector<double> scores,
                                                           std::optional<int32_t> unk_id, bool byte_fallback) {
  std::unique_ptr<UnigramModel> model(new UnigramModel(vocabulary));
  if (unk_id && !vocabulary.contains(*unk_id)) return corrupt("Unigram: unk_id {} is not in the vocabulary", *unk_id);
  model->unk_id_ = unk_id;
  model->byte_fallback_ = byte_fallback;
  double lowest = std::numeric_limits<double>::infinity();
  for (const double score : scores) lowest = std::min(lowest, score);
  model->unk_score_ = lowest - 10.0;
  model->token_.push_back(-1);
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    if (!vocabulary.contains(id)) continue;
    uint64_t node = 0;
    for (const char c : vocabulary.token(id)) {
      const uint64_t key = node << 8 | static_cast<unsigned char>(c);
      uint64_t next = model->edges_.find(key);
      if (next == FlatMap64::kNone) {
        next = model->token_.size();
        model->token_.push_back(-1);
        model->edges_.insert_or_assign(key, next);
      }
      node = next;
    }
    if (node != 0) model->token_[node] = id;
  }
  for (int b = 0; b < 256; ++b) model->byte_tokens_[b] = vocabulary.find(fmt::format("<0x{:02X}>", b));
  model->scores_ = std::move(scores);
  return model;
}

Status UnigramModel::emit(std::string_view text, std::vector<int32_t>& ids) const {
  if (const int32_t id = vocabulary_.find(text); id >= 0) {
    ids.push_back(id);
    return {};
  }
  const auto token = [this](char b) { return byte_tokens_[static_cast<unsigned char>(b)]; };
  if (byte_fallback_ && std::all_of(text.begin(), text.end(), [&](char b) { return token(b) >= 0; })) {
    for (const char b : text) ids.push_back(token(b));
    return {};
  }
  ids.push_back(*unk_id_);
  return {};
}

bool UnigramModel::keeps_all_text() const {
  return byte_fallback_ && std::all_of(byte_tokens_.begin(), byte_tokens_.end(), [](int32_t id) { return id >= 0; });
}

Status UnigramModel::encode_piece(std::string_view piece, EncodeBudget& budget, ModelScratch& scratch,
                                  std::vector<int32_t>& ids) const {
  const size_t n = piece.size();
  if (n > kMaxWordBytes) return too_large("a word of {} bytes to tokenize; the limit is {}", n, kMaxWordBytes);
  scratch.scores.assign(n + 1, 0.0);
  scratch.starts.assign(n + 1, -1);  // where the best token that ends here begins
  scratch.ids.assign(n + 1, -1);     // and which it is
  const auto offer = [&](size_t from, size_t to, double score, int32_t id) {
    if (scratch.starts[to] >= 0 && !(score > scratch.scores[to])) return;
    scratch.scores[to] = score;
    scratch.starts[to] = static_cast<int32_t>(from);
    scratch.ids[to] = id;
  };
  for (size_t at = 0; at < n;) {
    const size_t width = utf8_length(static_cast<unsigned char>(piece[at]));
    bool single = false;
    uint64_t node = 0;
    size_t i = at;
    for (; i < n; ++i) {
      node = edges_.find(node << 8 | static_cast<unsigned char>(piece[i]));
      if (node == FlatMap64::kNone) break;
      const int32_t id = token_[node];
      if (id < 0) continue;
      offer(at, i + 1, scores_[id] + scratch.scores[at], id);
      single |= i + 1 - at == width;
    }
    CHORAL_RETURN_IF_ERROR(budget.work(kStepsPerByte * (i - at), "the search for tokens"));
    if (!single) {
      const double score = unk_score_ + scratch.scores[at];
      if (scratch.starts[at + width] < 0 || score > scratch.scores[at + width]) {
        if (!unk_id_) return invalid_argument("the tokenizer has no unknown token for {}", quoted(piece.substr(at, width), 20));
        offer(at, at + width, score, *unk_id_);
      }
    }
    at += width;
  }
  // Back along the best path; runs of unknowns become one. `heap` serves as the list of (begin, end).
  scratch.heap.clear();
  bool last_unknown = false;
  for (size_t end = n; end > 0;) {
    const auto begin = static_cast<size_t>(scratch.starts[end]);
    const bool unknown = unk_id_ && scratch.ids[end] == *unk_id_;
    if (unknown && last_unknown) {
      scratch.heap.back() = static_cast<uint64_t>(begin) << 32 | (scratch.heap.back() & 0xFFFFFFFF);
    } else {
      scratch.heap.push_back(static_cast<uint64_t>(begin) << 32 | end);
    }
    last_unknown = unknown;
    end = begin;
  }
  for (size_t i = scratch.heap.size(); i-- > 0;) {
    const size_t begin = scratch.heap[i] >> 32, end = scratch.heap[i] & 0xFFFFFFFF;
    CHORAL_RETURN_IF_ERROR(emit(piece.substr(begin, end - begin), ids));
  }
  return {};
}

}  // namespace choral::text
