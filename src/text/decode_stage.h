// The running form of the decoder's steps: each stage takes tokens (begin, text …, end) and feeds the next one.
// All text between stages is made of whole UTF-8 characters, the input of a ByteLevel stage aside.
// Thread-safety: a chain belongs to one DecodeStream.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/encode_budget.h"

namespace choral::text {

struct DecoderStep;

class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void begin() { next_->begin(); }
  virtual void text(std::string_view part) { next_->text(part); }
  virtual void end() { next_->end(); }
  virtual void finish() { next_->finish(); }  // no token is open; gives out the rest and starts afresh

  void set_next(DecodeStage* next) { next_ = next; }
  virtual void set_output(std::string*) {}

 protected:
  DecodeStage* next_ = nullptr;
};

// `mapped`: tokens come as bytes already (ByteLevel only). A token of up to `longest_text` bytes is held without asking for
// memory.
std::unique_ptr<DecodeStage> make_decode_stage(const DecoderStep& step, bool mapped, size_t longest_text);
std::unique_ptr<DecodeStage> make_replace_stage(std::string_view pattern, std::string_view content);
std::unique_ptr<DecodeStage> make_fuse_stage();
std::unique_ptr<DecodeStage> make_join_stage();
std::unique_ptr<DecodeStage> make_output_stage();

std::string strip_token(const DecoderStep& step, std::string_view token);
inline constexpr std::string_view kDecoderStage = "the decoder of the tokenizer";  // in a budget's messages
// All matches of the step's regex in `token` changed to its content.
Status replace_regex(const DecoderStep& step, std::string_view token, EncodeBudget& budget, std::string& appended);

}  // namespace choral::text
