// Keeps one answer to its request's grammar: after each token, the mask of tokens that may come next, which goes to the sampler
// with the step, and whether the answer is finished. Tokens that a preempted request computes again are not accepted twice.
// It looks ahead too: the masks behind tokens that may come (guesses) are made before these are known, and when they come, they
// have their masks.
// Where the grammar bounds the time of a mask (GrammarMatcher::is_bounded), masks are made with the call that needs them; else
// beside the engine's thread (mask_threads.h). One thread at a time, the engine's unless a mask thread has it. Allocates nothing
// of its own once it is made; what it needs to look ahead is malloc's, for a guess is not worth what operator new does to have
// some (engine/spare_memory.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "sched/request.h"
#include "text/grammar/grammar.h"

namespace choral::engine {

// What an answer's masks have cost so far, as mask_threads.h counts it; of those that are made at once, as speculator.h does.
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

  // Of the token behind the first so many of ahead(), 0: that comes next: bit i % 32 of word i / 32 for token i.
  std::span<const uint32_t> mask(int32_t behind = 0) const { return words(behind); }
  bool allows(int32_t token) const { return allows(0, token); }
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
  bool finished() const { return places_[first_].finished; }

  // Once, before it looks ahead. Without, also where there is no memory for it, it sees nothing there.
  void make_room_ahead();
  // Makes the masks behind as many of these tokens as the grammar allows one behind the other, and says how many those are.
  static constexpr int32_t kMostAhead = sched::Request::kMostGuesses;
  // `goes_on` is asked before each.
  int32_t look_ahead(std::span<const int32_t> tokens, FunctionRef<bool()> goes_on);
  int32_t look_ahead(std::span<const int32_t> tokens) {
    return look_ahead(tokens, [] { return true; });
  }
  std::span<const int32_t> ahead() const { return ahead_; }
  // Of the tokens that probably come next, by the grammar alone, as many as have room.
  int32_t likely(std::span<int32_t> tokens);
  // What a mask thread is to look ahead to once it has the next mask, and then has in ahead(): these tokens, or the likely ones.
  // Each goes before the other where it is said to; what is not allowed is passed over.
  struct Wish {
    std::array<int32_t, kMostAhead> tokens = {};
    int32_t count = 0, likely_count = 0;
    bool likely_first = false;

    int32_t most() const { return std::max(count, likely_count); }
  };
  Wish wish;
  bool has_wish() const { return wish.most() > 0; }
  void grant_wish(FunctionRef<bool()> goes_on);
  bool ahead_is_likely() const { return ahead_is_likely_; }

  MaskAccount account;  // the engine thread's, always
  // Since the last call.
  int64_t take_masks_made() { return std::exchange(masks_made_, 0); }

 private:
  static constexpr size_t kPlaces = kMostAhead + 1;
  struct Place {
    bool complete = false, finished = false;
  };
  AnswerGrammar(std::unique_ptr<text::GrammarMatcher> matcher, int32_t vocab, std::vector<int32_t> end_ids,
                std::vector<int32_t> banned_ids);
  bool is_end(int32_t token) const;
  size_t slot(int32_t behind) const { return (first_ + static_cast<size_t>(behind)) % kPlaces; }
  uint32_t* words_at(size_t slot) const { return slot == 0 ? mask_.get() : masks_ahead_.get() + (slot - 1) * words_; }
  std::span<uint32_t> words(int32_t behind) { return {words_at(slot(behind)), words_}; }
  std::span<const uint32_t> words(int32_t behind) const { return {words_at(slot(behind)), words_}; }
  bool allows(int32_t behind, int32_t token) const;
  Status check_goes_on() const;
  void make_mask(int32_t behind);
  void forget_ahead(size_t kept);

  std::unique_ptr<text::GrammarMatcher> matcher_;  // behind ahead_
  std::vector<int32_t> end_ids_, banned_ids_;
  struct Free {
    void operator()(uint32_t* memory) const { std::free(memory); }
  };
  size_t words_;  // of a mask
  // Of places, in a circle, the first and the others; null: there is no room to look ahead.
  std::unique_ptr<uint32_t[]> mask_;
  std::unique_ptr<uint32_t[], Free> masks_ahead_;
  std::array<Place, kPlaces> places_ = {};
  size_t first_ = 0;  // that of the next token
  std::vector<int32_t> ahead_;
  bool ahead_is_likely_ = false;
  int64_t masks_made_ = 0;
  std::vector<int32_t> due_;
  bool due_are_given_ = false;
};

}  // namespace choral::engine
