// Grammars of the library xgrammar over one vocabulary. Thread-safety: compile() may run on many threads, each run has a
// compiler of its own; a grammar is immutable; a matcher belongs to one thread.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/grammar/grammar_vocabulary.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/xgrammar_library.h"

namespace choral::text {

struct CompiledGrammar {
  std::shared_ptr<const Grammar> grammar;
  size_t bytes = 0;  // of memory, by the library's account
};

// A share of the memory for grammars, given back with its last copy (grammar_cache.h).
using GrammarHold = std::shared_ptr<const void>;
using TakeHold = std::function<Result<GrammarHold>(size_t bytes)>;

class XgrammarCompiler {
 public:
  static Result<std::unique_ptr<XgrammarCompiler>> create(std::shared_ptr<const XgrammarLibrary> library,
                                                          std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                          std::shared_ptr<const JsonTokens> json_tokens);

  // Takes as long as the library takes. The wish has passed json_schema_check.h and regex_size.h. What is compiled and its
  // matchers keep what `hold` gives.
  Result<CompiledGrammar> compile(const StructuredOutput& wanted, const TakeHold& hold) const;

 private:
  // The library's view of the vocabulary. Structural tags may name special tokens (markers of tool calls), which then count as
  // the text they are spelled with; for all else they are no text.
  struct Tokens {
    FfiValue info;
    std::vector<uint32_t> text_mask;  // what may ever be allowed
    std::vector<int32_t> markers;     // special tokens that count as text
  };
  XgrammarCompiler(std::shared_ptr<const XgrammarLibrary> library, std::shared_ptr<const GrammarVocabulary> vocabulary)
      : library_(std::move(library)), vocabulary_(std::move(vocabulary)) {}
  Result<std::shared_ptr<const Tokens>> make_tokens(std::vector<int32_t> markers) const;
  Result<std::shared_ptr<const Tokens>> tokens_for(const StructuredOutput& wanted) const;

  // What a grammar and its matchers share.
  struct Shared {
    std::shared_ptr<const XgrammarLibrary> library;
    std::shared_ptr<const GrammarVocabulary> vocabulary;
    std::shared_ptr<const JsonTextAutomaton> json;  // null: the answer is no JSON
    std::shared_ptr<const TokenTrie> trie;
    std::shared_ptr<const Tokens> tokens;
    GrammarHold hold;
    std::shared_ptr<const std::vector<uint32_t>> first_mask;  // null until the grammar is whole
  };
  class OwnGrammar;
  class OwnMatcher;

  std::shared_ptr<const XgrammarLibrary> library_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  // The library lets control characters and quotes into strings with a length or a pattern: what a schema allows must be JSON
  // too.
  std::shared_ptr<const JsonTextAutomaton> json_;
  std::shared_ptr<const TokenTrie> trie_;
  std::shared_ptr<const Tokens> plain_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Tokens> with_markers_;  // those of the last tag with markers: a model has one set of them
};

}  // namespace choral::text
