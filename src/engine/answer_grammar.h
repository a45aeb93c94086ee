// Keeps one answer to its request's grammar: after each token, the mask of tokens that may come next, which goes to the sampler
// with the step, and whether the answer is finished. Tokens that a preempted request computes again are not accepted twice.
// Where the grammar bounds the time of a mask (GrammarMatcher::is_bounded), the mask is renewed with the token; else beside the
// engine's thread (mask_threads.h). One thread at a time, the engine's unless a mask thread has it. Allocates nothing of its own
// once it is made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "text/grammar/grammar.h"

namespace choral::engine {

// What an answer's masks have cost so far, as mask_threads.h counts it.
struct MaskAccount {
  double spent_s = 0;
  double credit_s = 0;  // what steps may still wait for
  int64_t masks = 0;
};

class AnswerGrammar {
 public:
  // `vocab`: the ids that the answer may have, with those that its adapter brings. `end_ids` end the answer: they are allowed
  // where the grammar lets it end, and only there; `banned_ids` never are. invalid_argument: nothing can be answered.
  static Result<std::unique_ptr<AnswerGrammar>> make(const text::Grammar& grammar, int32_t vocab, std::vector<int32_t> end_ids,
                                                     std::vector<int32_t> banned_ids);

  // Of the token that comes next: bit i % 32 of word i / 32 for token i.
  std::span<const uint32_t> mask() const { return mask_; }
  // The token that was sampled; its errors are advance()'s, unless that is left to do.
  Status accept(int32_t token);
  // The tokens that the answer begins with, before any other: as accept() of each. Masks in between are not made. What is wrong
  // with them is invalid_argument.
  Status give(std::vector<int32_t> tokens);
  // Tokens wait for advance(): neither the mask nor finished() speak of it yet.
  bool is_due() const { return !due_.empty(); }
  bool is_bounded() const { return matcher_->is_bounded(); }
  // internal: the mask did not allow the token. unsupported: no token can follow, and the answer is not complete.
  Status advance();
  // Complete, and nothing but its end may follow.
  bool finished() const { return finished_; }

  MaskAccount account;  // the engine thread's, always

 private:
  AnswerGrammar(std::unique_ptr<text::GrammarMatcher> matcher, int32_t vocab, std::vector<int32_t> end_ids,
                std::vector<int32_t> banned_ids);
  bool is_end(int32_t token) const;
  void set(int32_t token, bool allowed);
  bool any_allowed() const;
  void renew_mask();

  std::unique_ptr<text::GrammarMatcher> matcher_;
  std::vector<int32_t> end_ids_, banned_ids_;
  std::vector<uint32_t> mask_;
  std::vector<int32_t> due_;
  bool due_are_given_ = false;
  bool complete_ = false;
  bool finished_ = false;
};

}  // namespace choral::engine
