// Where the engine thread leaves an answer and a caller picks it up: one object a public request, shared by both.
// The engine appends to room reserved beforehand; the caller copies what is new. One mutex, held for microseconds.
#pragma once

#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"

namespace choral::engine {

class Response {
 public:
  // Room for `completions` answers of up to `expected_tokens` tokens each.
  Response(std::string id, std::vector<int32_t> prompt_token_ids, int completions, size_t expected_tokens, bool with_logprobs);

  // --- engine thread ---
  void add_token(int index, int32_t token_id, std::string_view text);
  void add_logprobs(int index, PositionLogprobs logprobs);  // of the token just added
  void add_text(int index, std::string_view text);
  // Moves those of prompt tokens from first_row + 1 on; rows come in order, each once.
  void add_prompt_logprobs(int32_t first_row, std::span<PositionLogprobs> logprobs);
  void finish(int index, FinishReason reason, std::string stop_reason, int cached_tokens, const RequestMetrics& metrics);
  // Ends the completion with an error; nothing happens when it has ended already.
  void fail(int index, Status status);

  // --- caller's threads ---
  bool next(StreamEvent& event);  // waits; false at the end
  RequestOutput wait();           // waits for the end; may be called once
  Status status() const;
  bool finished() const;
  const std::string& id() const { return id_; }

 private:
  // How much of a completion was handed out by next().
  struct Cursor {
    size_t text = 0, tokens = 0, logprobs = 0;
    bool finish = false;
  };
  // Null once it has ended: its reader may have taken everything away.
  Completion* open_completion(int index);
  bool has_news(size_t index) const;

  const std::string id_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RequestOutput output_;
  std::vector<Cursor> cursors_;
  int open_;
};

}  // namespace choral::engine
