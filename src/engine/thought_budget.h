// Ends an answer's thoughts behind a number of tokens: says which token must come next, where one must. Thoughts begin where the
// answer begins, behind a mark or where the prompt opened them, and end with a mark. All it knows are the answer's tokens, each
// told once, so a preempted request goes on as it would have. Never in the middle of a character.
// Engine thread, once it is made; what completions share is immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "choral/types.h"
#include "text/tokenizer.h"

namespace choral::engine {

class ThoughtBudget {
 public:
  // What the completions of a request share.
  struct Terms;
  // Null: there is no limit. unsupported: there is no tokenizer.
  static Result<std::shared_ptr<const Terms>> read(const ThoughtLimit& limit, std::shared_ptr<const text::Tokenizer> tokenizer);

  explicit ThoughtBudget(std::shared_ptr<const Terms> terms);

  // The token that must come next, or behind so many that must; kAny: none must.
  static constexpr int32_t kAny = -1;
  int32_t forced(int32_t behind = 0) const;
  // So many tokens may be guessed before free_of() says where that ends; 0 where one must come now.
  int64_t free_count() const;
  // Of these tokens so many may come, one behind the other, and none must behind any of them.
  int32_t free_of(std::span<const int32_t> tokens);
  void accept(int32_t token);

 private:
  enum class Part { kBegin, kThoughts, kForced, kBetween, kRest };

  void read_begin();
  void read_thoughts();
  void read_between();
  void begin_thoughts(size_t mark_end);
  void end_thoughts();
  void force_when_due();
  void keep_tail();

  std::shared_ptr<const Terms> terms_;
  Part part_;
  std::string text_;       // that may be, or begin, a mark
  std::string kept_text_;  // free_of()'s own
  int64_t thought_ = 0;    // tokens
  size_t end_place_ = 0;   // of the forced end's tokens that are there
};

}  // namespace choral::engine
