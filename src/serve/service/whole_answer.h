// An answer that goes out as a whole. A short one is written and sent at once, with its length. A long one goes in chunks, each
// written on another thread than the exchange's when the client has taken most of the one before: so no client waits for
// another's text, and of a text of any length some kilobytes are in memory. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "serve/http/exchange.h"
#include "serve/openai/answer_form.h"

namespace choral::serve {

struct WholeAnswer {
  static constexpr size_t kPieceBytes = 64 << 10;

  std::vector<RequestOutput> outputs;
  std::unique_ptr<AnswerForm> form;
  // Runs work on the thread that writes; false: no more.
  using Beside = std::function<bool(std::function<void()> work)>;
};

// On the exchange's I/O thread, or before anything was sent.
void send_text(std::shared_ptr<HttpExchange> exchange, Headers headers, std::unique_ptr<AnswerText> text,
               WholeAnswer::Beside beside);
void send_whole(std::shared_ptr<HttpExchange> exchange, Headers headers, WholeAnswer answer, WholeAnswer::Beside beside);

}  // namespace choral::serve
