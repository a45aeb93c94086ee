// How a route writes what the engine gives: the whole answer, or the pieces of a stream. A form knows its route's shapes and
// nothing of HTTP or of threads; one form serves one request. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "choral/types.h"
#include "serve/openai/calls.h"
#include "serve/openai/response_call.h"
#include "serve/tools/tools_request.h"

namespace choral::serve {

struct AnswerHead {
  std::string id;
  std::string model;  // as the client named it
  int64_t created_unix_s = 0;
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;
};

// The text that a token alone stands for.
using TokenText = std::function<std::string(int32_t token_id)>;

// The text of an answer, which is made as it is asked for: it may be much longer than what it is made of.
class AnswerText {
 public:
  virtual ~AnswerText() = default;
  // Appends what follows until `out` has as many bytes, or a little more. False: that was the end.
  virtual bool write(size_t enough_bytes, std::string& out) = 0;
};

class AnswerForm {
 public:
  virtual ~AnswerForm() = default;

  // `outputs`: one for each prompt of the body, in its order, none with an error. They and the form outlive the text.
  virtual std::unique_ptr<AnswerText> whole(const std::vector<RequestOutput>& outputs) = 0;

  // The server-sent events for what is new of the answer to a prompt; may be empty.
  virtual std::string piece(size_t prompt, const StreamEvent& event, const Usage& so_far) = 0;
  // What ends a stream that went well.
  virtual std::string end(const Usage& total) = 0;
};

// `first_tokens`: of each prompt, for a stream that echoes it with log-probabilities; else none.
std::unique_ptr<AnswerForm> make_completion_form(AnswerHead head, const CompletionCall& call, std::vector<int32_t> first_tokens,
                                                 TokenText token_text);
// `tools`: how calls are read from the text, when they are.
std::unique_ptr<AnswerForm> make_chat_form(AnswerHead head, const ChatCall& call, ToolPlan tools, TokenText token_text);
std::unique_ptr<AnswerForm> make_embedding_form(AnswerHead head, bool as_base64);

std::unique_ptr<AnswerForm> make_response_form(AnswerHead head, const ResponseCall& call, ToolPlan tools);

}  // namespace choral::serve
