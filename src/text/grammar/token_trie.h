// The texts of a vocabulary as one tree of bytes, flattened in the order of a walk: tokens that begin alike are tried together,
// and a byte that an automaton refuses skips everything below it. Thread-safety: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/grammar/grammar_vocabulary.h"

namespace choral::text {

class TokenTrie {
 public:
  TokenTrie(const GrammarVocabulary& vocabulary, std::span<const int32_t> ids);

  // Calls found(id, state behind the token) for each token that `automaton` takes from `from`. Linear in what is reached.
  // The automaton's step(State&, uint8_t) tells whether a byte fits.
  template <class Automaton, class Found>
  void walk(const Automaton& automaton, const typename Automaton::State& from, Found&& found) const {
    std::array<typename Automaton::State, GrammarVocabulary::kMaxTokenBytes + 1> states;
    states[0] = from;
    for (uint32_t i = 0; i + 1 < nodes_.size();) {
      const Node& node = nodes_[i];
      typename Automaton::State& state = states[node.depth];
      state = states[node.depth - 1];
      if (!automaton.step(state, node.byte)) {
        i = node.next;
        continue;
      }
      for (uint32_t t = node.tokens; t < nodes_[i + 1].tokens; ++t) found(ids_[t], state);
      ++i;
    }
  }

  // The longest token that `text` begins with.
  struct Longest {
    int32_t id = -1;   // -1: none
    size_t bytes = 0;  // of it
  };
  Longest longest(std::string_view text) const;

 private:
  struct Node {
    uint32_t next = 0;    // the first node that is not below this one
    uint32_t tokens = 0;  // its own are ids_[tokens] up to the next node's
    uint8_t byte = 0;
    uint8_t depth = 0;  // from 1
  };
  std::vector<Node> nodes_;  // and one behind the last
  std::vector<int32_t> ids_;
};

}  // namespace choral::text
