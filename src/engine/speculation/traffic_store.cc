#include "engine/speculation/traffic_store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace choral::engine {
namespace {

constexpr int32_t kFirstBook = 1024, kLargestBook = 16384;  // tokens
constexpr int32_t kBefore = 8;                              // tokens of the prompt
constexpr int32_t kLeastAnswer = 4;                         // tokens that are worth to be kept
constexpr int32_t kBetween = -1;
static_assert(kLargestBook <= PromptLookup::kMostText);

}  // namespace

// Keys are SHA-256 sums already.
size_t TrafficStore::HashOf::operator()(const cache::PrefixKey& key) const {
  size_t hash = 0;
  std::memcpy(&hash, key.data(), sizeof(hash));
  return hash;
}

int64_t TrafficStore::bytes_of(int32_t room) {
  return room == 0 ? 0 : int64_t{room} * static_cast<int64_t>(sizeof(int32_t)) + PromptLookup::bytes_for(room);
}

void TrafficStore::add(const cache::PrefixRoot& group, std::span<const int32_t> text, int32_t answer_begin) {
  if (std::ssize(text) - answer_begin < kLeastAnswer) return;
  text = text.subspan(static_cast<size_t>(std::max(answer_begin - kBefore, 0)));
  text = text.first(std::min<size_t>(text.size(), kLargestBook - 1));
  Shelf& shelf = shelves_[group.key];
  shelf.used = ++uses_;
  const auto wanted = static_cast<int32_t>(text.size()) + 1;
  if (shelf.now.count + wanted > shelf.now.room) begin_book(shelf, wanted);
  Book& book = shelf.now;
  if (book.count + wanted > book.room) return;  // no memory
  std::copy(text.begin(), text.end(), book.tokens.get() + book.count);
  book.count += wanted;
  book.tokens[book.count - 1] = kBetween;
  book.lookup.take_in(book.text());
}

void TrafficStore::begin_book(Shelf& shelf, int32_t least) {
  bytes_ -= bytes_of(shelf.before.room);
  const int32_t twice = std::max(2 * shelf.now.room, kFirstBook);
  shelf.before = std::exchange(shelf.now, {});
  const auto smallest = static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(least)));
  int32_t room = std::min(std::max(twice, smallest), kLargestBook);
  while (!make_room(bytes_of(room), shelf)) {
    if (room <= smallest) return;
    room = std::max(room / 2, smallest);
  }
  shelf.now.tokens.reset(static_cast<int32_t*>(std::malloc(static_cast<size_t>(room) * sizeof(int32_t))));
  if (shelf.now.tokens == nullptr || !shelf.now.lookup.make_room(room)) {
    shelf.now = {};
    return;
  }
  shelf.now.room = room;
  bytes_ += bytes_of(room);
}

bool TrafficStore::make_room(int64_t bytes, const Shelf& for_shelf) {
  while (bytes_ + bytes > most_bytes_) {
    auto longest_unused = shelves_.end();
    for (auto each = shelves_.begin(); each != shelves_.end(); ++each) {
      if (&each->second == &for_shelf) continue;
      if (longest_unused == shelves_.end() || each->second.used < longest_unused->second.used) longest_unused = each;
    }
    if (longest_unused == shelves_.end()) return false;
    bytes_ -= bytes_of(longest_unused->second.now.room) + bytes_of(longest_unused->second.before.room);
    shelves_.erase(longest_unused);
  }
  return true;
}

TrafficStore::Guess TrafficStore::guess(const cache::PrefixRoot& group, std::span<const int32_t> text, std::span<int32_t> out,
                                        int32_t more_than) {
  const auto found = shelves_.find(group.key);
  if (found == shelves_.end()) return {};
  Shelf& shelf = found->second;
  shelf.used = ++uses_;
  Guess guess;
  for (const Book* book : {&shelf.now, &shelf.before}) {
    const auto match = book->lookup.find(book->text(), text);
    if (match.tokens <= std::max(more_than, guess.matched)) continue;
    const auto rest = book->text().subspan(static_cast<size_t>(match.last) + 1);
    const auto end =
        std::find(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(std::min(rest.size(), out.size())), kBetween);
    if (end == rest.begin()) continue;
    std::copy(rest.begin(), end, out.begin());
    guess = {match.tokens, static_cast<int32_t>(end - rest.begin())};
  }
  return guess;
}

}  // namespace choral::engine
