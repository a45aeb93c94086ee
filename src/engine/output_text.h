// The text of one completion while its tokens come: detokenised, watched for stop strings, released only as far as it is certain.
// Text that may begin a stop string is held back. Released text never shrinks.
// Engine thread only. push() allocates nothing once the text has its room.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/shared_list.h"
#include "text/stream_detokenizer.h"

namespace choral::engine {

inline constexpr size_t kTextBytesPerToken = 8;  // room reserved; English takes about 4

struct OutputTextOptions {
  SharedList<std::string> stop;  // empty ones stop nothing
  bool include_stop = false;     // keep the stop string at the end of the text
  bool skip_special_tokens = true;
};

class OutputText {
 public:
  // Without a tokenizer there is no text and no stop string is ever found.
  OutputText(std::shared_ptr<const text::Tokenizer> tokenizer, OutputTextOptions options, size_t expected_tokens);

  // Adds a token; true when a stop string is complete: the text is cut there and matched_stop() says which. Then push no more.
  bool push(int32_t token_id, bool look_for_stops = true);
  // The end for another reason: what was held back comes out, stop strings are looked for once more.
  bool finish();

  bool has_stops() const { return longest_stop_ > 0; }
  const std::string& matched_stop() const { return options_.stop[*matched_]; }
  bool stopped() const { return matched_.has_value(); }

  // What became certain since the last call.
  std::string_view take_released();

 private:
  bool find_stop();
  size_t held_back() const;  // bytes at the end that may begin a stop string

  OutputTextOptions options_;
  std::optional<text::StreamDetokenizer> detokenizer_;
  size_t longest_stop_ = 0;
  std::string text_;
  size_t released_ = 0;  // given out by take_released()
  size_t searched_ = 0;  // no stop string begins and ends before here
  std::optional<size_t> matched_;
  bool finished_ = false;
};

}  // namespace choral::engine
