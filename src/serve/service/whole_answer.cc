#include "serve/service/whole_answer.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/out_of_memory.h"
#include "serve/http/error_response.h"

namespace choral::serve {
namespace {

// Kept alive by whoever has its next turn: the thread that writes, or the exchange until the client has taken enough.
class Writing : public std::enable_shared_from_this<Writing> {
 public:
  Writing(std::shared_ptr<HttpExchange> exchange, std::unique_ptr<AnswerText> text, WholeAnswer::Beside beside)
      : exchange_(std::move(exchange)), beside_(std::move(beside)), text_(std::move(text)) {}

  void begin(Headers headers) {
    Piece first = next();
    if (!first.status.ok()) return exchange_->respond(error_response(first.status));
    if (first.is_last) return exchange_->respond({.status = 200, .headers = std::move(headers), .body = std::move(first.text)});
    exchange_->begin_stream(200, std::move(headers));
    send(std::move(first.text));
  }

 private:
  struct Piece {
    Status status;
    std::string text;
    bool is_last = false;
  };

  Piece next() {
    Piece piece;
    piece.status = or_out_of_memory("the answer cannot be written", [&] {
      piece.is_last = !text_->write(WholeAnswer::kPieceBytes, piece.text);
      return text_->status();
    });
    return piece;
  }

  void send(std::string piece) {
    exchange_->send(std::move(piece));
    exchange_->on_drained([self = shared_from_this()] {
      if (!self->beside_([self] { self->go_on(); })) self->exchange_->abort();
    });
  }

  void go_on() {
    if (exchange_->closed()) return;
    Piece piece = next();
    if (!piece.status.ok()) {
      CHORAL_LOG(kError, "{}", piece.status.message());
      return exchange_->abort();
    }
    if (!piece.is_last) return send(std::move(piece.text));
    exchange_->send(std::move(piece.text));
    exchange_->end_stream();
  }

  const std::shared_ptr<HttpExchange> exchange_;
  const WholeAnswer::Beside beside_;
  const std::unique_ptr<AnswerText> text_;
};

// With what it is made of.
class WholeText final : public AnswerText {
 public:
  explicit WholeText(WholeAnswer answer) : answer_(std::move(answer)), text_(answer_.form->whole(answer_.outputs)) {}
  bool write(size_t enough_bytes, std::string& out) override { return text_->write(enough_bytes, out); }

 private:
  const WholeAnswer answer_;
  const std::unique_ptr<AnswerText> text_;
};

}  // namespace

void send_text(std::shared_ptr<HttpExchange> exchange, Headers headers, std::unique_ptr<AnswerText> text,
               WholeAnswer::Beside beside) {
  std::make_shared<Writing>(std::move(exchange), std::move(text), std::move(beside))->begin(std::move(headers));
}

void send_whole(std::shared_ptr<HttpExchange> exchange, Headers headers, WholeAnswer answer, WholeAnswer::Beside beside) {
  send_text(std::move(exchange), std::move(headers), std::make_unique<WholeText>(std::move(answer)), std::move(beside));
}

}  // namespace choral::serve
