// How a route writes what the engine gives: the whole answer, or the pieces of a stream. A form knows its route's shapes and
// nothing of HTTP or of threads; one form serves one request. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "choral/types.h"
#include "serve/error_body.h"
#include "serve/http/sse.h"
#include "serve/openai/answer_plan.h"
#include "serve/openai/calls.h"
#include "serve/openai/resume_token.h"

namespace choral::serve {

struct AnswerHead {
  std::string id;
  std::string model;  // as the client named it
  int64_t created_unix_s = 0;
  std::string system_fingerprint;
  std::string prompt_digest = {};  // resume_digest() of a prompt whose answer's stream can go on elsewhere
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t reasoning_tokens = 0;  // of completion_tokens; forms that read thoughts count them
  GuessCounts guesses = {};
};

// How far the answer to one prompt is, and how long it took.
struct Progress {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t made_tokens = 0;  // of all its completions, as the guesses
  GuessCounts guesses = {};
  double prompt_s = 0;  // until the first token, without waiting for a place in a batch
  double answer_s = 0;  // from then on
};
Progress progress_of(const RequestOutput& output);
// Of prompts that were answered at the same time.
Progress together(const Progress& a, const Progress& b);

// The tokens of each prompt of a body, where its answer shows them piece by piece; else none.
using PromptTokens = std::vector<std::vector<int32_t>>;

// The text that a token alone stands for.
using TokenText = std::function<std::string(int32_t token_id)>;

// The text of an answer, which is made as it is asked for: it may be much longer than what it is made of.
class AnswerText {
 public:
  virtual ~AnswerText() = default;
  // Appends what follows until `out` has as many bytes, or a little more. False: that was the end.
  virtual bool write(size_t enough_bytes, std::string& out) = 0;
  virtual Status status() const { return {}; }  // of what was written last
};

class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // `outputs`: one for each prompt of the body, in its order, none with an error. They and the form outlive the text.
  virtual std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) = 0;

  // Which content of each adapter the answer is made with, and with which seed: before a stream's first piece. Its end tells the
  // adapters too, as its head may have gone out before they were known.
  void set_facts(AnswerFacts facts) { facts_ = std::move(facts); }

  // Of a stream, before each piece: how far the answer to a prompt is with it.
  void set_progress(size_t prompt, const Progress& progress) {
    if (prompt >= progress_.size()) progress_.resize(prompt + 1);
    progress_[prompt] = progress;
  }

  // The server-sent events for what is new of the answer to a prompt; may be empty.
  virtual std::string piece(size_t prompt, const StreamEvent& event, const Usage& so_far) = 0;
  // What the request brought of the answer, before its first piece: goes the way of any, so that all that follows is as if it had
  // come here, and is not told again.
  void replay(size_t prompt, const StreamEvent& event, const Usage& so_far) {
    replays_ = true;
    (void)piece(prompt, event, so_far);
    replays_ = false;
  }
  // What ends a stream that went well.
  virtual std::string end(const Usage& total) = 0;
  // What ends one that failed. Never a clean [DONE] after it: clients raise on an event with `error`.
  virtual std::string error(const ApiError& error) { return sse_data(error_event(error)); }
  virtual Headers stream_headers() const { return sse_headers(); }
  // What says that there will be more, while there is nothing new.
  virtual std::string keep_alive() { return sse_keep_alive(); }

 protected:
  const std::vector<AnswerAdapter>& adapters() const { return facts_.adapters; }
  bool replays() const { return replays_; }
  // For streams that tell how to go on elsewhere: at first, of each event, and with each chunk.
  void tell_resume(const CallHead& call) {
    if (call.include_resume) resume_.emplace(call.goes_on);
    begun_with_ = call.request.given_adapters;
  }
  void note_resume(const StreamEvent& event) {
    if (resume_) replays_ ? resume_->add_given(event) : resume_->add(event);
  }
  std::string take_resume(const AnswerHead& head) {  // empty: there is nothing to tell
    if (!resume_ || replays_) return {};
    return resume_->take({.fingerprint = head.system_fingerprint,
                          .seed = facts_.seed,
                          .prompt = head.prompt_digest,
                          .adapters = begun_with_ ? *begun_with_ : resume_digests(facts_.adapters)});
  }
  Progress progress(size_t prompt) const { return prompt < progress_.size() ? progress_[prompt] : Progress(); }

 private:
  AnswerFacts facts_;
  std::vector<Progress> progress_;  // one a prompt
  bool replays_ = false;
  std::optional<ResumeWriter> resume_;
  // Contents of adapters, of an answer that goes on: it may be made of no more steps.
  std::optional<std::vector<std::string>> begun_with_;
};

// `prompts`: when shows_prompts() of the call.
std::unique_ptr<AnswerForm> make_completion_form(AnswerHead head, const CompletionCall& call, PromptTokens prompts,
                                                 TokenText token_text);
// `plan`: how thoughts and calls are read from the text, when they are.
std::unique_ptr<AnswerForm> make_chat_form(AnswerHead head, const ChatCall& call, PromptTokens prompts, AnswerPlan plan,
                                           TokenText token_text);
std::unique_ptr<AnswerForm> make_embedding_form(AnswerHead head, bool as_base64);

// Whether the stream says what its prompts' tokens are: by their ids, or by the first of those that an echo has log-probabilities
// of, which no event names.
bool shows_prompts(const CompletionCall& call);
bool shows_prompts(const ChatCall& call);

}  // namespace choral::serve
