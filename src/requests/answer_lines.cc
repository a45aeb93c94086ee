#include "requests/answer_lines.h"

#include "base/json_quoted.h"
#include "requests/finite_logprob.h"
#include "requests/json.h"

namespace choral::requests {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

Json position_json(const PositionLogprobs& position) {
  Json top = Json::array();
  for (const auto& t : position.top) top.push_back({{"token_id", t.token_id}, {"logprob", finite_logprob(t.logprob)}});
  return {{"token_id", position.chosen.token_id}, {"logprob", finite_logprob(position.chosen.logprob)}, {"top", std::move(top)}};
}

// An object on its way out. Holds one piece; after an error nothing more is written.
class AnswerWriter {
 public:
  explicit AnswerWriter(const PieceWriter& write) : write_(write) {}

  void open() { put("{"), first_ = true; }
  void close() { put("}"), first_ = false; }
  void key(std::string_view name) {
    put(fmt::format("{}\"{}\":", first_ ? "" : ",", name));
    first_ = false;
  }
  void field(std::string_view name, std::string_view json) { key(name), put(json); }

  // [a,b,…]: `write_one` puts each.
  template <class T, class WriteOne>
  void array(std::string_view name, const std::vector<T>& values, WriteOne write_one) {
    key(name), put("[");
    bool first = true;
    for (const auto& value : values) {
      if (!std::exchange(first, false)) put(",");
      write_one(value);
    }
    put("]");
  }
  void ids(std::string_view name, const std::vector<int32_t>& ids) {
    array(name, ids, [this](int32_t id) { put(fmt::format("{}", id)); });
  }
  void logprobs(std::string_view name, const std::vector<PositionLogprobs>& positions) {
    array(name, positions, [this](const PositionLogprobs& position) { put(dumped(position_json(position))); });
  }

  void put(std::string_view text) {
    piece_ += text;
    if (piece_.size() >= kPieceBytes) flush();
  }
  Status finish() {
    flush();
    return std::move(status_);
  }

 private:
  void flush() {
    if (status_.ok() && !piece_.empty()) status_ = write_(piece_);
    piece_.clear();
  }

  const PieceWriter& write_;
  std::string piece_;
  Status status_;
  bool first_ = true;
};

void put_completion(const Completion& c, AnswerWriter& out) {
  out.ids("token_ids", c.token_ids);
  out.field("text", json_quoted(c.text));
  out.field("finish_reason", json_quoted(finish_reason_name(c.finish_reason)));
  if (!c.stop_reason.empty()) out.field("stop_reason", json_quoted(c.stop_reason));
  if (!c.logprobs.empty()) out.logprobs("logprobs", c.logprobs);
  if (!c.logprobs.empty() || c.beam_score)
    out.field("cumulative_logprob", dumped(finite_logprob(static_cast<float>(c.cumulative_logprob))));
  if (c.beam_score) out.field("beam_score", dumped(*c.beam_score));
}

void put_echo(const LineEcho& echo, AnswerWriter& out) {
  out.field("id", echo.id_json);
  if (!echo.lora_json.empty()) out.field("lora", echo.lora_json);
}

void put_error(const Status& status, AnswerWriter& out) {
  out.field("error", dumped({{"code", code_name(status.code())}, {"message", status.message()}}));
}

}  // namespace

Status write_answer(const LineEcho& echo, const RequestOutput& output, const PieceWriter& write) {
  AnswerWriter out(write);
  out.open();
  put_echo(echo, out);
  out.ids("prompt_token_ids", output.prompt_token_ids);
  if (!output.completions.empty()) put_completion(output.completions.front(), out);
  const auto numbers = [&out](std::string_view name, const std::vector<float>& values) {
    if (!values.empty()) out.array(name, values, [&out](float value) { out.put(fmt::format("{}", value)); });
  };
  numbers("embedding", output.embedding);
  numbers("classes", output.classes);
  if (!output.prompt_logprobs.empty()) out.logprobs("prompt_logprobs", output.prompt_logprobs);
  if (output.cached_tokens > 0) out.field("cached_tokens", fmt::format("{}", output.cached_tokens));
  if (output.completions.size() > 1) {
    out.array("completions", output.completions, [&out](const Completion& completion) {
      out.open();
      out.field("index", fmt::format("{}", completion.index));
      put_completion(completion, out);
      out.close();
    });
  }
  if (!output.status.ok()) put_error(output.status, out);
  out.close();
  return out.finish();
}

std::string error_line(const LineEcho& echo, int64_t line, const Status& status) {
  std::string text;
  const PieceWriter append = [&text](std::string_view piece) { return text += piece, Status(); };
  AnswerWriter out(append);
  out.open();
  put_echo(echo, out);
  out.field("line", fmt::format("{}", line));
  put_error(status, out);
  out.close();
  CHORAL_CHECK(out.finish().ok(), "appending to a text cannot fail");
  return text;
}

std::string lora_json(const std::vector<AdapterUse>& adapters) {
  if (adapters.empty()) return {};
  if (adapters.size() == 1 && adapters[0].scale == 1.0F) return json_quoted(adapters[0].name);
  Json list = Json::array();
  for (const auto& use : adapters) {
    list.push_back({{"name", use.name}, {"scale", Json::parse(fmt::format("{}", use.scale))}});  // 0.3, not the double beside it
  }
  return dumped(list);
}

}  // namespace choral::requests
