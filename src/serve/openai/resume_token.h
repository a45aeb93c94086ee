// What the chunks of a stream say of their answer for whoever has to go on with it elsewhere (`stream_options.include_resume`),
// and what a request that goes on brings (`resume`). A token has pieces, each with a full stop behind it: the first says where
// the answer comes from, the others which tokens it has so far. A chunk carries the pieces that are new with it. All pieces, one
// behind the other, are the resume token of the answer so far. They are opaque to clients, and checked against damage, loss and
// mixing, not against forgery: they say nothing that a client could not ask for by other fields.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"

namespace choral::serve {

// Under which conditions an answer's tokens are what they are.
struct ResumeOrigin {
  std::string fingerprint = {};  // system_fingerprint
  uint64_t seed = 0;
  std::string prompt = {};                 // digest of its tokens
  std::vector<std::string> adapters = {};  // the first digits of their contents' digests, in the request's order

  bool operator==(const ResumeOrigin&) const = default;
};
// The same for the same tokens.
std::string resume_digest(const std::vector<int32_t>& prompt);
std::vector<std::string> resume_digests(const std::vector<AnswerAdapter>& adapters);

// Not thread-safe: one for each stream.
class ResumeWriter {
 public:
  // `goes_on`: the request brought the pieces of what is given.
  explicit ResumeWriter(bool goes_on) : goes_on_(goes_on) {}

  void add_given(const StreamEvent& event);
  void add(const StreamEvent& event);
  // The pieces of all that was added since, after the first one where it was not told.
  std::string take(const ResumeOrigin& origin);

 private:
  struct News {
    int index = 0;
    size_t begin = 0;
    std::vector<int32_t> token_ids = {};
    bool ended = false;
  };
  size_t advance(const StreamEvent& event);

  bool goes_on_;
  std::string head_ = {};            // the first piece's bytes; empty: it was not made
  std::vector<size_t> tokens_ = {};  // of each completion, so far
  std::vector<News> news_ = {};
};

struct ResumeToken {
  ResumeOrigin origin;
  std::vector<GivenAnswer> given;  // of each completion, as far as any was told of
};
// invalid_argument: it is none, or not whole.
Result<ResumeToken> read_resume_token(std::string_view text);

}  // namespace choral::serve
