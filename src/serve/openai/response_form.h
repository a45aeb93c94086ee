// /v1/responses: response objects, and the events that tell of one growing. For .cc files only (serve/openai/json.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "serve/openai/answer_form.h"
#include "serve/openai/json.h"
#include "serve/openai/response_call.h"

namespace choral::serve {

// Is given the response once, when it has ended, well or not: an object.
using KeepResponse = std::function<void(const std::string& response_json)>;

class ResponseAnswerForm : public AnswerForm {
 public:
  // The response before there is anything of it: "queued".
  virtual std::string begun(std::string_view status) const = 0;
  // The same as the first events of its stream.
  virtual std::string queued() = 0;
};

// `keep`: may be empty.
std::unique_ptr<ResponseAnswerForm> make_response_form(AnswerHead head, const ResponseCall& call, const AnswerPlan& plan,
                                                       TokenText token_text, KeepResponse keep);

// What a response says of why it failed.
Json response_error(const ApiError& error);

}  // namespace choral::serve
