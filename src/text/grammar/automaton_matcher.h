// A grammar that is an automaton over bytes, and its matcher: the mask is what the automaton takes of the vocabulary's tree.
// The automaton has State, step() and complete() as JsonAutomaton has, and known(): what of the mask is known for a state
// without a walk, and the tree of the tokens that are left to try. Nothing is allocated after matcher().
// Thread-safety: the grammar is immutable, the matcher belongs to one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_vocabulary.h"
#include "text/grammar/token_trie.h"

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

template <class Automaton>
class AutomatonMatcher final : public GrammarMatcher {
 public:
  AutomatonMatcher(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary)
      : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)), state_(automaton_->start()) {}

  void fill_mask(std::span<uint32_t> words) override {
    const KnownMask known = automaton_->known(state_);
    const size_t copied = std::min(known.words.size(), words.size());
    std::copy_n(known.words.begin(), copied, words.begin());
    std::fill(words.begin() + static_cast<std::ptrdiff_t>(copied), words.end(), 0);
    known.rest.walk(*automaton_, state_, [words](int32_t id, const typename Automaton::State&) { set_bit(words, id); });
    if (!complete()) return;
    for (const int32_t id : vocabulary_->end_ids()) set_bit(words, id);
  }

  bool accept(int32_t token) override {
    if (vocabulary_->is_end(token)) return complete();
    return take(token, state_);
  }
  bool fits(int32_t token) const {  // accept() would take this text
    typename Automaton::State state = state_;
    return take(token, state);
  }

  bool complete() const override { return automaton_->complete(state_); }
  bool is_bounded() const override { return true; }

 private:
  bool take(int32_t token, typename Automaton::State& state) const {
    const std::string_view text = vocabulary_->text(token);
    typename Automaton::State behind = state;
    for (const char c : text) {
      if (!automaton_->step(behind, static_cast<uint8_t>(c))) return false;
    }
    state = behind;
    return !text.empty();
  }

  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  typename Automaton::State state_;
};

template <class Automaton>
class AutomatonGrammar final : public Grammar {
 public:
  AutomatonGrammar(std::shared_ptr<const Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary)
      : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)) {}

  Result<std::unique_ptr<GrammarMatcher>> matcher() const override {
    return std::unique_ptr<GrammarMatcher>(std::make_unique<AutomatonMatcher<Automaton>>(automaton_, vocabulary_));
  }

 private:
  std::shared_ptr<const Automaton> automaton_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
};

}  // namespace choral::text
