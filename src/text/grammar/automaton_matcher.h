// A grammar that is an automaton over bytes, and its matcher: the mask is what the automaton takes of the vocabulary's tree.
// The automaton has State, step() and complete() as JsonAutomaton has, and known(): what of the mask is known for a state
// without a walk, and the tree of the tokens that are left to try. Nothing is allocated after matcher().
// Thread-safety: the grammar is immutable, the matcher belongs to one thread.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_vocabulary.h"
#include "text/grammar/token_trie.h"
#include "text/grammar/white_space_style.h"

namespace choral::text {

struct KnownMask {
  std::span<const uint32_t> words;  // tokens that fit for sure; empty: none is known
  const TokenTrie& rest;            // the others that may fit
};

inline void set_bit(std::span<uint32_t> words, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  if (word < words.size()) words[word] |= uint32_t{1} << (id % 32);
}

inline bool has_bit(std::span<const uint32_t> words, int32_t id) {
  return id >= 0 && static_cast<size_t>(id) / 32 < words.size() && (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

// Writes the tokens of a text, each the longest that fits, and says how many.
inline int32_t write_tokens(std::string_view text, const TokenTrie& all, std::span<int32_t> tokens) {
  size_t count = 0;
  while (count < tokens.size()) {
    const auto [id, bytes] = all.longest(text);
    if (id < 0) break;
    tokens[count++] = id;
    text.remove_prefix(bytes);
  }
  return static_cast<int32_t>(count);
}

template <class Automaton>
class AutomatonMatcher final : public GrammarMatcher {
 public:
  AutomatonMatcher(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary,
                   std::shared_ptr<const TokenTrie> all)
      : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)), all_(std::move(all)) {
    places_[0].state = automaton_->start();
  }

  void fill_mask(std::span<uint32_t> words) override {
    const KnownMask known = automaton_->known(state());
    const size_t copied = std::min(known.words.size(), words.size());
    std::copy_n(known.words.begin(), copied, words.begin());
    std::fill(words.begin() + static_cast<std::ptrdiff_t>(copied), words.end(), 0);
    known.rest.walk(*automaton_, state(), [words](int32_t id, const typename Automaton::State&) { set_bit(words, id); });
    if (!complete()) return;
    for (const int32_t id : vocabulary_->end_ids()) set_bit(words, id);
  }

  bool accept(int32_t token) override {
    if (vocabulary_->is_end(token)) return complete();
    const std::string_view text = vocabulary_->text(token);
    Place behind = places_[now_];
    if (text.empty() || !take(text, behind)) return false;
    now_ = (now_ + 1) % places_.size();
    places_[now_] = behind;
    return true;
  }
  bool fits(int32_t token) const {  // accept() would take this text
    const std::string_view text = vocabulary_->text(token);
    State behind = state();
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) { return automaton_->step(behind, byte_of(c)); });
  }

  bool complete() const override { return automaton_->complete(state()); }
  bool is_bounded() const override { return true; }
  void rollback(int32_t tokens) override { now_ = (now_ + places_.size() - static_cast<size_t>(tokens)) % places_.size(); }

  int32_t likely(std::span<int32_t> tokens) override {
    std::array<char, kMostLikely> text;
    return write_tokens({text.data(), likely_text(text)}, *all_, tokens);
  }

 private:
  using State = typename Automaton::State;
  struct Place {
    State state;
    WhiteSpaceStyle style;
  };
  static constexpr size_t kMostLikely = 96;
  static uint8_t byte_of(char c) { return static_cast<uint8_t>(c); }
  const State& state() const { return places_[now_].state; }

  bool take(std::string_view text, Place& place) const {
    for (const char c : text) {
      if (!automaton_->step(place.state, byte_of(c))) return false;
      place.style.take(c);
    }
    return true;
  }
  // The visible bytes that may come next.
  struct Next {
    int count = 0;  // 2: several
    char byte = 0;
    bool may_be_space = false;
  };
  Next next(const State& from) const {
    Next next;
    for (char c = ' '; c <= '~' && next.count < 2; ++c) {  // where others may come, some of these may too, mostly
      State behind = from;
      if (!automaton_->step(behind, byte_of(c))) continue;
      if (c == ' ') {
        next.may_be_space = true;
      } else {
        ++next.count;
        next.byte = c;
      }
    }
    return next;
  }
  size_t likely_text(std::span<char> text) const {
    Place place = places_[now_];
    WhiteSpaceStyle style;
    size_t size = 0;
    const auto add = [&](std::string_view more) {
      if (more.empty() || more.size() > text.size() - size || !take(more, place)) return false;
      std::copy(more.begin(), more.end(), text.begin() + static_cast<std::ptrdiff_t>(size));
      size += more.size();
      return true;
    };
    while (!automaton_->complete(place.state)) {
      const Next coming = next(place.state);
      style = place.style;
      if (coming.may_be_space && coming.count > 0) add(style.rest());
      if (coming.count > 1) break;
      const char only = coming.count == 1 ? coming.byte : ' ';
      if (!add({&only, 1})) break;
    }
    return size;
  }

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<const TokenTrie> all_;
  std::array<Place, GrammarMatcher::kMostRollback + 1> places_;  // the last ones, in a circle
  size_t now_ = 0;
};

template <class Automaton>
class AutomatonGrammar final : public Grammar {
 public:
  AutomatonGrammar(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary,
                   std::shared_ptr<const TokenTrie> all)
      : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)), all_(std::move(all)) {}

  Result<std::unique_ptr<GrammarMatcher>> matcher() const override {
    return std::unique_ptr<GrammarMatcher>(std::make_unique<AutomatonMatcher<Automaton>>(automaton_, vocabulary_, all_));
  }

 private:
  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::shared_ptr<const TokenTrie> all_;  // of the vocabulary
};

}  // namespace choral::text
