// Token ids to text while they come: the pieces, put together, are exactly Tokenizer::decode() of all ids.
// Never gives half a UTF-8 character; text that a later token may still change (open UTF-8 sequences, runs of byte tokens,
// spaces that clean-up may remove) is held back until it is certain. Work per token is constant on average.
// Thread-safety: one stream belongs to one thread at a time; the tokenizer may be shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace choral::text {

class DecodeStream;

class StreamDetokenizer {
 public:
  explicit StreamDetokenizer(std::shared_ptr<const Tokenizer> tokenizer, DecodeOptions options = {});
  ~StreamDetokenizer();
  StreamDetokenizer(StreamDetokenizer&&) noexcept;
  StreamDetokenizer& operator=(StreamDetokenizer&&) noexcept;

  std::string push(int32_t id);                  // text that is now certain; often empty
  void push(int32_t id, std::string& appended);  // the same, appended: no allocation once `appended` has room
  std::string finish();                          // what was held back; then the stream is fresh again

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  DecodeOptions options_;
  std::unique_ptr<DecodeStream> stream_;
};

}  // namespace choral::text
