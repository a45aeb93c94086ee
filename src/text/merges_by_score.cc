// Merges out of SentencePiece's scores.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <tuple>

#include "text/gguf_tokenizer.h"

namespace choral::text {
namespace {

constexpr size_t kLongestPiece = 256;  // bytes; SentencePiece's pieces have at most 16 characters by default

// A token's text from its begin (`of_ends`: from its end): what a comparison of most tokens needs, without their texts.
struct Key {
  static constexpr size_t kWord = sizeof(uint64_t), kHead = 2 * kWord;

  std::array<uint64_t, 2> head{};  // the first bytes
  int32_t id = 0;
  uint32_t size = 0;
};

Key make_key(int32_t id, std::string_view text, bool of_ends) {
  Key key{.id = id, .size = static_cast<uint32_t>(text.size())};
  for (size_t i = 0; i < std::min(text.size(), Key::kHead); ++i) {
    const auto byte = static_cast<unsigned char>(of_ends ? text[text.size() - 1 - i] : text[i]);
    key.head[i / Key::kWord] |= uint64_t{byte} << (8 * (Key::kWord - 1 - i % Key::kWord));
  }
  return key;
}

bool head_begins_with(const Key& key, const Key& part) {
  for (size_t w = 0; w < part.head.size(); ++w) {
    if (part.size <= w * Key::kWord) break;
    const size_t beyond = (w + 1) * Key::kWord - std::min<size_t>(part.size, (w + 1) * Key::kWord);
    if ((key.head[w] ^ part.head[w]) >> (8 * beyond) != 0) return false;
  }
  return true;
}

// For each token the longest shorter token that it begins with (`of_ends`: ends with); -1: none. All others that it begins with
// follow link by link. In sorted order a token stands behind those that it begins with, so one stack finds them without a
// look-up for every cut of every token.
std::vector<int32_t> longest_within(const Vocabulary& vocabulary, bool of_ends) {
  std::vector<Key> order;
  order.reserve(vocabulary.size());
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    if (!vocabulary.contains(id)) continue;
    const std::string_view text = vocabulary.token(id);
    if (!text.empty() && text.size() <= kLongestPiece) order.push_back(make_key(id, text, of_ends));
  }
  std::sort(order.begin(), order.end(), [&](const Key& a, const Key& b) {
    if (a.head != b.head) return a.head < b.head;
    if (std::max(a.size, b.size) <= Key::kHead) return std::tie(a.size, a.id) < std::tie(b.size, b.id);
    const std::string_view x = vocabulary.token(a.id), y = vocabulary.token(b.id);
    if (x == y) return a.id < b.id;
    if (!of_ends) return x < y;
    return std::lexicographical_compare(x.rbegin(), x.rend(), y.rbegin(), y.rend(), [](char l, char r) {
      return static_cast<unsigned char>(l) < static_cast<unsigned char>(r);
    });
  });
  std::vector<int32_t> longest(static_cast<size_t>(vocabulary.id_limit()), -1);
  std::vector<Key> open;  // tokens that the one before begins with, itself last
  for (const Key& key : order) {
    const auto begins_with = [&](const Key& part) {
      if (part.size > key.size || !head_begins_with(key, part)) return false;
      if (part.size <= Key::kHead) return true;
      const std::string_view text = vocabulary.token(key.id), within = vocabulary.token(part.id);
      return of_ends ? text.ends_with(within) : text.starts_with(within);
    };
    while (!open.empty() && !begins_with(open.back())) open.pop_back();
    if (!open.empty() && open.back().size == key.size) open.pop_back();  // the same text twice: the later id counts
    if (!open.empty()) longest[key.id] = open.back().id;
    open.push_back(key);
  }
  return longest;
}

}  // namespace

Result<std::vector<BpeMerge>> merges_by_score(const GgufTokenizerData& data, const Vocabulary& vocabulary) {
  std::vector<int32_t> order;  // tokens that merges make
  for (size_t id = 0; id < data.tokens.size(); ++id) {
    const int type = token_type(data, id);
    if ((type != kNormal && type != kUserDefined && type != kUnused) || data.tokens[id].size() > kLongestPiece) continue;
    if (std::isnan(data.scores[id])) return corrupt("the score of token {} is not a number", id);
    order.push_back(static_cast<int32_t>(id));
  }
  const auto better = [&](int32_t a, int32_t b) { return data.scores[a] > data.scores[b]; };
  if (!std::is_sorted(order.begin(), order.end(), better)) std::stable_sort(order.begin(), order.end(), better);

  const std::vector<int32_t> begins = longest_within(vocabulary, false), ends = longest_within(vocabulary, true);
  std::vector<BpeMerge> merges;
  std::array<int32_t, kLongestPiece> right_of{};                          // by size
  std::vector<size_t> sizes(static_cast<size_t>(vocabulary.id_limit()));  // at hand, other than the vocabulary's entries
  for (int32_t id = 0; id < vocabulary.id_limit(); ++id) {
    if (vocabulary.contains(id)) sizes[id] = vocabulary.token(id).size();
  }
  for (const int32_t id : order) {
    const std::string_view token = vocabulary.token(id);
    const int32_t result = vocabulary.has_twins() ? vocabulary.find(token) : id;
    std::fill_n(right_of.begin(), token.size(), -1);
    for (int32_t right = ends[id]; right >= 0; right = ends[right]) right_of[sizes[right]] = right;
    const auto first = std::ssize(merges);
    for (int32_t left = begins[id]; left >= 0; left = begins[left]) {
      const size_t cut = sizes[left];
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;  // within a character
      if (right_of[token.size() - cut] >= 0) merges.push_back({left, right_of[token.size() - cut], result});
    }
    std::sort(merges.begin() + first, merges.end(),
              [](const BpeMerge& a, const BpeMerge& b) { return std::tie(a.left, a.right) < std::tie(b.left, b.right); });
  }
  return merges;
}

}  // namespace choral::text
