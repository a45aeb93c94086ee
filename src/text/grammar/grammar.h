// Grammars that an answer must keep: what a request asks for (StructuredOutput) is compiled once, and each answer then has a
// matcher that says after every token which tokens may come next. JSON objects, choices and plain schemas (plain_schema.h) are
// served by our own automata; other schemas, regular expressions, EBNF and structural tags by the library xgrammar, opened at run
// time where it is installed. Special tokens never count as text: a matcher allows end ids, where the answer may end, and tokens
// that spell bytes. Thread-safety: a compiler and a grammar may be used from many threads at once; a matcher belongs to one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "choral/types.h"

namespace choral::text {

class Tokenizer;

class GrammarMatcher {
 public:
  virtual ~GrammarMatcher() = default;
  // Writes all words: bit i % 32 of word i / 32 tells whether token i may come next. Ids without text stay 0: rows that pad a
  // vocabulary, special tokens, tokens that an adapter brings. All words 0: nothing may follow; the answer is at its end when
  // complete(), and cannot be finished with this vocabulary when not.
  virtual void fill_mask(std::span<uint32_t> words) = 0;
  // False: the mask did not allow it, and nothing changed. An end id is accepted when complete() and changes nothing.
  virtual bool accept(int32_t token) = 0;
  virtual bool complete() const = 0;  // the answer may end here
  // Takes the last so many tokens back that were accepted, none of them an end id; at most kMostRollback.
  static constexpr int32_t kMostRollback = 16;
  virtual void rollback(int32_t tokens) = 0;
  // Writes tokens that probably come next, since the text can go on in one way only, white space aside, and says how many. Which
  // tokens a text is written with is the model's to say, so it is a guess.
  virtual int32_t likely(std::span<int32_t> tokens) = 0;
  // Whether the calls above take a time that the vocabulary bounds, whatever the grammar and the text are. Those of others may
  // take seconds and cannot be stopped: nobody may wait for them but their own answer.
  virtual bool is_bounded() const = 0;
};

class Grammar {
 public:
  virtual ~Grammar() = default;
  virtual Result<std::unique_ptr<GrammarMatcher>> matcher() const = 0;  // at the beginning of an answer
};

struct GrammarLimits {
  size_t max_text_bytes = 256 * 1024;  // a schema, grammar or structural tag
  size_t max_regex_bytes = 4096;       // each, in schemas too
  int max_depth = 64;                  // of a schema, and of a JSON object that is written
  size_t max_choices = 4096;
  size_t max_choices_bytes = 256 * 1024;  // together
  double max_compile_s = 10;
  int compile_threads = 2;
  size_t max_waiting = 64;  // compilations that wait for a thread
  size_t max_cached = 256;
  size_t max_cached_bytes = 256 * 1024 * 1024;
  size_t max_live_bytes = 1024 * 1024 * 1024;  // of compiled grammars, those included that answers in flight hold
};

struct GrammarOptions {
  // The folder that holds xgrammar (a site-packages). Empty: CHORAL_XGRAMMAR, the active virtual environment, the usual places.
  std::filesystem::path library;
  GrammarLimits limits = {};
};

class GrammarCompiler {
 public:
  virtual ~GrammarCompiler() = default;
  // Blocks for max_compile_s at most. The same wish gives the same grammar while it is cached. invalid_argument: the wish is
  // broken, with the place; too_large: over a limit; unsupported: the library is needed and is not there; deadline_exceeded: it
  // takes too long; resource_exhausted: others take too long, or answers in flight hold too much memory.
  virtual Result<std::shared_ptr<const Grammar>> compile(const StructuredOutput& wanted) = 0;
  // Why only JSON objects, choices and plain schemas are served, and what to install; fine when all kinds are. For the operator:
  // it may name folders of this machine, which refusals of compile() do not. The library is found once; where it is missing, it
  // is looked for again after a folder in which it may be has changed.
  virtual Status library_status() = 0;
};

// `end_ids`: the tokens that end an answer. The tokenizer is not used after the call.
Result<std::unique_ptr<GrammarCompiler>> make_grammar_compiler(const Tokenizer& tokenizer, std::vector<int32_t> end_ids,
                                                               GrammarOptions options = {});

}  // namespace choral::text
