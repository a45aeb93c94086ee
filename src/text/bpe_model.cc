#include "text/bpe_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "text/byte_level.h"
#include "text/unicode.h"

namespace choral::text {
namespace {

constexpr size_t kShortWord = 40;      // symbols; up to here plain arrays beat the heap
constexpr size_t kLongestAffix = 64;   // bytes; written for each character
constexpr size_t kLongestWhole = 256;  // bytes; longer tokens are not looked up whole
// Cuts lie before characters from here on ("▁" above all): within ASCII words nearly every pair occurs in some merge.
constexpr uint32_t kFirstCut = 0x80;
constexpr uint32_t kNoText = ~uint32_t{0};

uint64_t joint_key(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << 32 | right; }

}  // namespace

Result<std::vector<BpeMerge>> find_merges(const Vocabulary& vocabulary, std::span<const TextPair> merges,
                                          std::string_view prefix) {
  std::vector<BpeMerge> found;
  found.reserve(merges.size());
  std::string merged;
  for (const auto& [left, right] : merges) {
    BpeMerge merge{.left = vocabulary.find(left), .right = vocabulary.find(right)};
    if (merge.left < 0 || merge.right < 0) {
      return corrupt("merge {} joins {} and {}, and the vocabulary has no {}", found.size(), quoted(left, 100),
                     quoted(right, 100), quoted(merge.left < 0 ? left : right, 100));
    }
    if (right.size() < prefix.size())
      return corrupt("merge {}: {} is shorter than the subword prefix", found.size(), quoted(right, 100));
    merged.assign(left).append(right.substr(prefix.size()));
    merge.result = vocabulary.find(merged);
    if (merge.result < 0) return corrupt("merge {} makes {}, which is not in the vocabulary", found.size(), quoted(merged, 100));
    found.push_back(merge);
  }
  return found;
}

Result<std::unique_ptr<BpeModel>> BpeModel::create(const Vocabulary& vocabulary, const BpeConfig& config) {
  std::unique_ptr<BpeModel> model(new BpeModel(vocabulary));
  model->unk_token_ = config.unk_token;
  if (config.unk_token) model->unk_id_ = vocabulary.find(*config.unk_token);
  model->prefix_ = config.continuing_subword_prefix;
  model->suffix_ = config.end_of_word_suffix;
  model->fuse_unk_ = config.fuse_unk;
  model->byte_fallback_ = config.byte_fallback;
  model->ignore_merges_ = config.ignore_merges;
  model->bytes_ = config.bytes;
  if (model->prefix_.empty() && model->suffix_.empty()) {
    model->is_whole_ = std::vector<std::atomic<bool>>(static_cast<size_t>(vocabulary.id_limit()));
  }
  if (std::max(config.continuing_subword_prefix.size(), config.end_of_word_suffix.size()) > kLongestAffix) {
    return too_large("model: continuing_subword_prefix or end_of_word_suffix has more than {} bytes", kLongestAffix);
  }
  model->add_merges(config);
  model->index_symbols(config);
  model->index_joints(config);
  model->index_bytes();
  return model;
}

void BpeModel::add_merges(const BpeConfig& config) {
  merges_ = FlatMap64(config.merges.size());
  uint64_t rank = 0;
  for (const BpeMerge& m : config.merges) {
    merges_.insert_or_assign(static_cast<uint64_t>(m.left) << 32 | static_cast<uint64_t>(m.right),
                             rank++ << 32 | static_cast<uint64_t>(m.result));
  }
}

void BpeModel::index_symbols(const BpeConfig& config) {
  for (int b = 0; b < 256; ++b) {
    std::string character;
    append_utf8(kByteChars[b], character);
    byte_symbols_[b] = vocabulary_.find(character);
    byte_tokens_[b] = config.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", b)) : -1;
  }
  for (int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    if (!vocabulary_.contains(id)) continue;
    const std::string_view token = vocabulary_.token(id);
    if (token.empty() || utf8_length(static_cast<unsigned char>(token[0])) != token.size()) continue;
    const char* p = token.data();
    char_symbols_.insert_or_assign(next_code_point(p), static_cast<uint64_t>(id));
  }
}

// A cut between two characters is safe when no merge's result has them side by side: no symbol can then come to lie across.
// That argument needs symbols that are the text they stand for, so merges of byte tokens or the unknown token rule it out.
void BpeModel::index_joints(const BpeConfig& config) {
  can_cut_ = !bytes_ && !ignore_merges_ && prefix_.empty() && suffix_.empty();
  if (!can_cut_) return;
  struct Ends {
    uint32_t first = kNoText, last = kNoText;  // characters
  };
  std::vector<Ends> ends(static_cast<size_t>(vocabulary_.id_limit()));
  for (int32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    if (!vocabulary_.contains(id) || id == unk_id_) continue;
    const std::string_view token = vocabulary_.token(id);
    const char *p = token.data(), *const end = p + token.size();
    while (p < end) {
      ends[id].last = next_code_point(p);
      if (ends[id].first == kNoText) ends[id].first = ends[id].last;
    }
  }
  for (const int32_t id : byte_tokens_) {
    if (id >= 0) ends[id] = {};
  }
  for (const BpeMerge& merge : config.merges) {
    const uint32_t left = ends[merge.left].last, right = ends[merge.right].first;
    if (left == kNoText || right == kNoText) {
      can_cut_ = false;
      return;
    }
    if (right >= kFirstCut) joints_.insert_or_assign(joint_key(left, right), 1);
  }
}

// Where a vocabulary is spelled in byte_level.h's characters, its tokens by the bytes that they stand for.
void BpeModel::index_bytes() {
  if (!bytes_) return;
  const int32_t limit = vocabulary_.id_limit();
  bytes_arena_.reserve(vocabulary_.text_bytes());  // a character of byte_level.h takes no fewer than the byte that it stands for
  by_bytes_ = StringTable(vocabulary_.size());
  std::string bytes;
  for (int32_t id = 0; id < limit; ++id) {
    bytes.clear();
    if (!vocabulary_.contains(id) || !append_bytes_of_chars(vocabulary_.token(id), bytes) || bytes.empty()) continue;
    const size_t begin = bytes_arena_.size();
    bytes_arena_ += bytes;
    by_bytes_.insert_or_assign(std::string_view(bytes_arena_).substr(begin), id);
  }
}

int32_t BpeModel::symbol_of(std::string_view character, uint32_t code_point) const {
  if (bytes_) return byte_symbols_[static_cast<unsigned char>(character[0])];
  const uint64_t id = char_symbols_.find(code_point);
  return id == FlatMap64::kNone ? -1 : static_cast<int32_t>(id);
}

int32_t BpeModel::affixed_symbol(std::string_view character, bool first, bool last) const {
  std::string symbol = first ? "" : prefix_;
  symbol += character;
  if (last) symbol += suffix_;
  return vocabulary_.find(symbol);
}

Status BpeModel::spell(std::string_view word, std::vector<int32_t>& symbols) const {
  const bool affixes = !prefix_.empty() || !suffix_.empty();
  bool unknown = false;  // an unknown token waits: it is written when the next known character comes, or at the end
  for (const char *p = word.data(), *end = p + word.size(); p < end;) {
    const char* from = p;
    uint32_t code_point = 0;
    if (bytes_) {
      ++p;
    } else {
      code_point = next_code_point(p);
    }
    const std::string_view character(from, p - from);
    const int32_t id = affixes ? affixed_symbol(character, from == word.data(), p == end) : symbol_of(character, code_point);
    if (id >= 0) {
      if (unknown) symbols.push_back(unk_id_);
      unknown = false;
      symbols.push_back(id);
      continue;
    }
    if (byte_fallback_) {
      std::string spelled = from == word.data() ? "" : prefix_;
      spelled += character;
      if (p == end) spelled += suffix_;
      const auto token = [this](char b) { return byte_tokens_[static_cast<unsigned char>(b)]; };
      if (std::all_of(spelled.begin(), spelled.end(), [&](char b) { return token(b) >= 0; })) {
        for (const char b : spelled) symbols.push_back(token(b));
        continue;
      }
    }
    if (!unk_token_) continue;  // HF drops what it cannot spell
    if (unk_id_ < 0)
      return invalid_argument("the tokenizer's unknown token {} is not in its vocabulary", quoted(*unk_token_, 100));
    if (unknown && !fuse_unk_) symbols.push_back(unk_id_);
    unknown = true;
  }
  if (unknown) symbols.push_back(unk_id_);
  return {};
}

void BpeModel::merge_short(std::vector<int32_t>& symbols) const {
  std::array<uint64_t, kShortWord> merges;  // of symbols i and i+1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = merge_of(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i] < merges[best]) best = i;
    }
    if (merges[best] == FlatMap64::kNone) break;
    symbols[best] = static_cast<int32_t>(merges[best] & 0xFFFFFFFF);
    std::copy(symbols.begin() + best + 2, symbols.begin() + n, symbols.begin() + best + 1);
    --n;
    std::copy(merges.begin() + best + 1, merges.begin() + n, merges.begin() + best);
    if (best > 0) merges[best - 1] = merge_of(symbols[best - 1], symbols[best]);
    if (best + 1 < n) merges[best] = merge_of(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

// A heap of (rank, position); an entry is stale when the pair at its position has another rank by now.
void BpeModel::merge_long(ModelScratch& scratch) const {
  std::vector<int32_t>& ids = scratch.ids;
  const auto n = static_cast<int32_t>(ids.size());
  scratch.previous.resize(ids.size());
  scratch.next.resize(ids.size());
  scratch.heap.clear();
  const auto push_pair = [&](int32_t left, int32_t right) {
    const uint64_t merge = merge_of(ids[left], ids[right]);
    if (merge != FlatMap64::kNone) scratch.heap.push_back((merge & ~uint64_t{0xFFFFFFFF}) | static_cast<uint32_t>(left));
    return merge != FlatMap64::kNone;
  };
  for (int32_t i = 0; i < n; ++i) {
    scratch.previous[i] = i - 1;
    scratch.next[i] = i + 1;
    if (i + 1 < n) push_pair(i, i + 1);
  }
  const auto later = std::greater<uint64_t>();
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), later);
    const uint64_t top = scratch.heap.back();
    scratch.heap.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFF);
    const int32_t right = scratch.next[left];
    if (ids[left] < 0 || right >= n) continue;
    const uint64_t merge = merge_of(ids[left], ids[right]);
    if (merge == FlatMap64::kNone || merge >> 32 != top >> 32) continue;
    ids[left] = static_cast<int32_t>(merge & 0xFFFFFFFF);
    ids[right] = -1;
    const int32_t behind = scratch.next[right];
    scratch.next[left] = behind;
    if (behind < n) {
      scratch.previous[behind] = left;
      if (push_pair(left, behind)) std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
    }
    const int32_t before = scratch.previous[left];
    if (before >= 0 && push_pair(before, left)) std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  }
  ids.erase(std::remove_if(ids.begin(), ids.end(), [](int32_t id) { return id < 0; }), ids.end());
}

Status BpeModel::encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& ids) const {
  const int32_t own = word.size() <= kLongestWhole && !is_whole_.empty() ? token_of(word) : -1;
  if (own >= 0 && is_whole_[own].load(std::memory_order_relaxed)) {
    ids.push_back(own);
    return {};
  }
  if (word.size() > kMaxWordBytes)
    return too_large("a word of {} bytes to tokenize; the limit is {}", word.size(), kMaxWordBytes);
  scratch.ids.clear();
  CHORAL_RETURN_IF_ERROR(spell(word, scratch.ids));
  if (scratch.ids.size() <= kShortWord) {
    merge_short(scratch.ids);
  } else {
    merge_long(scratch);
  }
  if (own >= 0 && scratch.ids.size() == 1 && scratch.ids[0] == own) is_whole_[own].store(true, std::memory_order_relaxed);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
  return {};
}

bool BpeModel::keeps_all_text() const {
  const auto& of_bytes = bytes_ ? byte_symbols_ : byte_tokens_;
  return (bytes_ || byte_fallback_) && std::all_of(of_bytes.begin(), of_bytes.end(), [](int32_t id) { return id >= 0; });
}

Status BpeModel::encode_piece(std::string_view piece, EncodeBudget& budget, ModelScratch& scratch,
                              std::vector<int32_t>& ids) const {
  if (ignore_merges_) {
    if (const int32_t id = token_of(piece); id >= 0) {
      ids.push_back(id);
      return {};
    }
  }
  if (!can_cut_) return encode_word(piece, scratch, ids);
  // A cut needs known characters on both sides, for an unknown one may wait (see spell) to fuse with the next.
  const char* begin = piece.data();
  const char* const end = begin + piece.size();
  uint32_t last = 0;
  bool last_known = false;
  for (const char* p = begin; p < end;) {
    const char* from = p;
    const uint32_t c = next_code_point(p);
    if (c < kFirstCut) {
      last = c;
      last_known = true;  // decided below, where it is asked for
      continue;
    }
    const bool known = char_symbols_.find(c) != FlatMap64::kNone;
    if (known && from > begin && last_known && joints_.find(joint_key(last, c)) == FlatMap64::kNone &&
        char_symbols_.find(last) != FlatMap64::kNone) {
      CHORAL_RETURN_IF_ERROR(encode_word({begin, static_cast<size_t>(from - begin)}, scratch, ids));
      CHORAL_RETURN_IF_ERROR(budget.check_tokens(ids.size()));
      begin = from;
    }
    last = c;
    last_known = known;
  }
  return encode_word({begin, static_cast<size_t>(end - begin)}, scratch, ids);
}

}  // namespace choral::text
