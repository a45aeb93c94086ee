// The "decoder" of tokenizer.json: tokens back to text. There is only the streaming form (DecodeStream); decoding a whole
// list is pushing all of it and finishing, so the two cannot differ.
// A stage sees tokens as begin, text …, end; after Fuse or ByteLevel everything is one long token. A stage holds back only
// what later input may change; text that leaves the last stage is final.
// Thread-safety: DecoderSpec is immutable after load; a DecodeStream belongs to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/encode_budget.h"
#include "text/regex.h"

namespace choral::text {

struct DecoderStep {
  enum class Kind { kByteLevel, kReplaceString, kReplaceRegex, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind;
  std::string pattern{};         // kReplaceString
  std::string content{};         // kReplace*
  std::optional<Regex> regex{};  // kReplaceRegex
  uint32_t character = ' ';      // kStrip, kMetaspace: what to strip, the replacement
  size_t start = 0, stop = 0;    // kStrip: how many at most
  bool prepended = true;         // kMetaspace: the first token carries a prefix to remove
};

struct DecoderSpec {
  std::vector<DecoderStep> steps;
  bool joins_with_spaces = false;  // the file has no decoder: HF puts a space between tokens
  bool clean_up = false;           // transformers' clean_up_tokenization (" ." -> "." …) on the result
  // The first steps that look at one token only are run at load, for every token (see token_text).
  size_t steps_done_at_load = 0;
  bool tokens_are_bytes = false;  // … and so was ByteLevel's map, if it follows them
  size_t longest_text = 0;        // of a token of the vocabulary, in bytes: what a stream holds without asking for memory

  // Sets the two fields above; call when the steps are complete.
  void plan();
  // What the steps done at load make of one token. The budget is the whole vocabulary's.
  Result<std::string> token_text(std::string_view token, EncodeBudget& budget) const;
  // The bytes that a token stands for in the middle of a text; `text` is token_text's.
  Result<std::string> token_bytes(std::string text, EncodeBudget& budget) const;
};

class DecodeStage;

class DecodeStream {
 public:
  explicit DecodeStream(const DecoderSpec& spec);  // `spec` must outlive the stream
  ~DecodeStream();

  void push(std::string_view token_text, std::string& out);  // of one token, as DecoderSpec::token_text made it
  void finish(std::string& out);                             // the rest; the stream is fresh afterwards

 private:
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // each feeds the next, the last one writes to the caller's string
};

// The byte that a token of the form "<0xHH>" stands for, or -1.
int byte_fallback_value(std::string_view token);

}  // namespace choral::text
