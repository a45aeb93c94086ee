// Where the engine thread leaves an answer and a caller picks it up: one object a public request, shared by both. The engine
// appends to room reserved beforehand; the caller copies what is new. One mutex, held for microseconds.
// wake() tells callers of news, outside of that mutex and once a step: those who wait, and those with a callback. That is the
// costly part, so the engine does it while a device works.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "choral/types.h"

namespace choral::engine {

struct ResponseForm {
  int completions = 1;         // that are made
  int best = 0;                // so many of them are given, those with the highest mean log-probability; 0 = all, as they come
  size_t expected_tokens = 0;  // of each: room for them is reserved
  bool with_logprobs = false;
  uint64_t seed = 0;       // AnswerFacts'
  bool gives_text = true;  // false: an embedding or classes in the place of completions
};

class Response {
 public:
  Response(std::string id, std::vector<int32_t> prompt_token_ids, const ResponseForm& form);

  // Before the engine has it: what the request brings of a completion, and its text.
  void give(int index, std::vector<int32_t> token_ids, std::string_view text);

  // --- engine thread ---
  // One of the completions is in its first step. The facts are those of the first call.
  void begin(int cached_tokens, std::vector<AnswerAdapter> adapters, double queue_s = 0);
  bool begun() const;
  void add_token(int index, int32_t token_id, float logprob, std::string_view text);
  void add_logprobs(int index, PositionLogprobs logprobs);  // of the token just added
  void add_text(int index, std::string_view text);
  // Moves those of prompt tokens from first_row + 1 on; rows come in order, each once.
  void add_prompt_logprobs(int32_t first_row, std::span<PositionLogprobs> logprobs);
  // Of its guessed tokens so far.
  void set_guesses(int index, const GuessCounts& guesses);
  void set_embedding(std::vector<float> embedding);
  void set_classes(std::vector<float> logits);
  void finish(int index, FinishReason reason, std::string stop_reason, const RequestMetrics& metrics, bool by_token = false);
  // Ends the completion with an error; nothing happens when it has ended already. `adapter_unusable`: AnswerFacts'.
  void fail(int index, Status status, bool adapter_unusable = false);
  // After any of these: wakes those who wait, and calls back whom on_ready() promised it.
  void wake();

  // --- caller's threads ---
  bool next(StreamEvent& event);  // waits; false at the end
  StreamState try_next(StreamEvent& event);
  StreamState next_for(StreamEvent& event, std::chrono::milliseconds limit);
  void on_ready(std::function<void()> callback);
  AnswerFacts facts() const;
  std::vector<int32_t> prompt_token_ids() const;  // none after wait()
  std::vector<StreamEvent> given() const;         // likewise
  RequestOutput wait();                           // waits for the end; may be called once
  Status status() const;
  bool finished() const;
  const std::string& id() const { return id_; }

 private:
  // How much of a completion was handed out as events.
  struct Cursor {
    size_t text = 0, tokens = 0, logprobs = 0;
    GuessCounts guesses = {};
    bool prompt_logprobs = false, finish = false;
  };
  // Null once it has ended: its reader may have taken everything away.
  Completion* open_completion(int index);
  void end_one();
  void keep_best();
  void tell();
  // What is given is known at the end.
  bool is_silent() const { return (form_.best > 0 || !form_.gives_text) && open_ > 0; }
  bool has_news(size_t index) const;
  bool take_news(StreamEvent& event);
  StreamState take(StreamEvent& event);

  const std::string id_;
  const ResponseForm form_;

  mutable std::mutex mutex_;  // guards what follows, but for the last four
  std::condition_variable changed_;
  RequestOutput output_;
  AnswerFacts facts_;
  std::vector<Cursor> cursors_;
  int open_;
  bool called_back_ = false;  // somebody wants to be
  bool told_ = false;         // … and was told of news since it last found none

  std::atomic<bool> news_ = false;  // that wake() has not told of
  std::atomic<bool> call_due_ = false;
  std::mutex callback_mutex_;  // taken before the other; held while the callback runs
  std::function<void()> callback_;
};

}  // namespace choral::engine
