// The C API: each function is one call of the C++ one between checks of its pointers and JSON. No exception leaves a function.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/json_quoted.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "choral/choral.h"
#include "choral/llm.h"
#include "requests/answer_lines.h"
#include "requests/engine_json.h"

struct choral_engine {
  std::unique_ptr<choral::LLM> llm;
};

namespace choral {
namespace {

// Positions as the caller reads them; kept from one piece to the next.
class PositionArray {
 public:
  std::span<const choral_position> fill(const std::vector<PositionLogprobs>& positions) {
    top_.clear();
    positions_.clear();
    for (const auto& position : positions) {
      for (const auto& token : position.top) top_.push_back({token.token_id, token.logprob});
      positions_.push_back({{position.chosen.token_id, position.chosen.logprob}, nullptr, position.top.size()});
    }
    const choral_logprob* top = top_.data();
    for (auto& position : positions_) {
      if (position.top_count > 0) position.top = top;
      top += position.top_count;
    }
    return positions_;
  }

 private:
  std::vector<choral_logprob> top_;
  std::vector<choral_position> positions_;
};

}  // namespace
}  // namespace choral

struct choral_answer {
  std::unique_ptr<choral::ResponseStream> stream;
  choral::requests::LineEcho echo;
  choral::StreamEvent event = {};  // the piece that was given last
  choral::PositionArray logprobs = {}, prompt_logprobs = {};
  bool taken = false;  // as a whole
};

namespace choral {
namespace {

#define CHORAL_SAME(name, code) static_assert(CHORAL_##name == static_cast<int32_t>(Code::code))
CHORAL_SAME(OK, kOk);
CHORAL_SAME(INVALID_ARGUMENT, kInvalidArgument);
CHORAL_SAME(NOT_FOUND, kNotFound);
CHORAL_SAME(ALREADY_EXISTS, kAlreadyExists);
CHORAL_SAME(CORRUPT, kCorrupt);
CHORAL_SAME(UNSUPPORTED, kUnsupported);
CHORAL_SAME(TOO_LARGE, kTooLarge);
CHORAL_SAME(RESOURCE_EXHAUSTED, kResourceExhausted);
CHORAL_SAME(UNAVAILABLE, kUnavailable);
CHORAL_SAME(CANCELLED, kCancelled);
CHORAL_SAME(DEADLINE_EXCEEDED, kDeadlineExceeded);
CHORAL_SAME(PERMISSION_DENIED, kPermissionDenied);
CHORAL_SAME(INTERNAL, kInternal);
#undef CHORAL_SAME
#define CHORAL_SAME(name, reason) static_assert(CHORAL_FINISH_##name == static_cast<int32_t>(FinishReason::reason))
CHORAL_SAME(NONE, kNone);
CHORAL_SAME(STOP, kStop);
CHORAL_SAME(LENGTH, kLength);
CHORAL_SAME(CANCELLED, kCancelled);
CHORAL_SAME(ERROR, kError);
#undef CHORAL_SAME

constexpr size_t kFirstPieceSize = offsetof(choral_piece, logprobs);  // of version 1: no caller has less

// A copy that choral_free() frees; null when there is no memory.
char* copied(std::string_view text) noexcept {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return nullptr;
  std::copy(text.begin(), text.end(), copy);
  copy[text.size()] = '\0';
  return copy;
}

Status give(std::string_view text, char** out) {
  *out = copied(text);
  return *out != nullptr ? Status() : out_of_memory("the text cannot be given");
}

Status give(std::span<const int32_t> ids, int32_t** out, size_t* count) {
  *out = static_cast<int32_t*>(std::malloc(std::max<size_t>(ids.size_bytes(), 1)));
  if (*out == nullptr) return out_of_memory("the ids cannot be given");
  std::copy(ids.begin(), ids.end(), *out);
  *count = ids.size();
  return {};
}

Status missing(std::string_view argument) { return invalid_argument("{} is NULL", argument); }

// What `work` gives, as a code and a text.
template <class Work>
int32_t answered(char** error, Work&& work) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    const Status status = or_out_of_memory("the call cannot be done", std::forward<Work>(work));
    if (!status.ok() && error != nullptr) *error = copied(status.message());
    return static_cast<int32_t>(status.code());
  } catch (const std::exception& e) {
    if (error != nullptr) *error = copied(e.what());
  } catch (...) {  // nothing crosses into C
  }
  return CHORAL_INTERNAL;
}

// The same for calls with an engine.
template <class Work>
int32_t with_engine(choral_engine* engine, char** error, Work&& work) noexcept {
  return answered(error, [&]() -> Status { return engine == nullptr ? missing("the engine") : work(*engine->llm); });
}

constexpr int64_t kDayMs = 86'400'000;

StreamState next_event(ResponseStream& stream, int64_t wait_ms, StreamEvent& event) {
  if (wait_ms == 0) return stream.try_next(event);
  if (wait_ms < 0) return stream.next(event) ? StreamState::kEvent : StreamState::kEnd;
  return stream.next_for(event, std::chrono::milliseconds(std::min(wait_ms, kDayMs)));
}

choral_piece piece_of(StreamState state, choral_answer& answer) {
  const StreamEvent& event = answer.event;
  choral_piece piece{};
  if (state == StreamState::kPending) return piece;
  piece.state = state == StreamState::kEnd ? CHORAL_END : CHORAL_PIECE;
  if (state == StreamState::kEnd) return piece;
  piece.index = event.index;
  piece.finish = static_cast<int32_t>(event.finish_reason);
  piece.text = event.text.empty() ? nullptr : event.text.c_str();
  piece.text_bytes = event.text.size();
  piece.token_ids = event.token_ids.empty() ? nullptr : event.token_ids.data();
  piece.token_count = event.token_ids.size();
  const auto logprobs = answer.logprobs.fill(event.logprobs), prompt = answer.prompt_logprobs.fill(event.prompt_logprobs);
  piece.logprobs = logprobs.empty() ? nullptr : logprobs.data();
  piece.logprob_count = logprobs.size();
  piece.prompt_logprobs = prompt.empty() ? nullptr : prompt.data();
  piece.prompt_logprob_count = prompt.size();
  return piece;
}

Result<requests::RequestLine> read_request(const LLM& llm, std::string_view json) {
  requests::RequestLineReader reader(llm.default_sampling(), /*warn=*/{});
  requests::RequestLine line;
  CHORAL_RETURN_IF_ERROR(reader.read(json, line));
  return line;
}

Status submit(LLM& llm, std::string_view json, choral_answer*& out) {
  CHORAL_TRY(auto line, read_request(llm, json));
  auto answer = std::make_unique<choral_answer>();
  answer->echo = std::move(line.echo);
  CHORAL_TRY(answer->stream, llm.submit(std::move(line.request)));
  if (answer->echo.id_json == "null") answer->echo.id_json = json_quoted(answer->stream->id());
  out = answer.release();
  return {};
}

Status take_whole(choral_answer& answer, char** json) {
  if (std::exchange(answer.taken, true)) return invalid_argument("the answer was taken before");
  const RequestOutput output = answer.stream->wait();
  std::string text;
  CHORAL_RETURN_IF_ERROR(
      requests::write_answer(answer.echo, output, [&text](std::string_view piece) { return text += piece, Status(); }));
  CHORAL_RETURN_IF_ERROR(give(text, json));
  return output.status;
}

Result<std::shared_ptr<const AdapterBytes>> held(std::span<const choral_file> files) {
  auto made = std::make_shared<AdapterBytes>();
  for (const auto& file : files) {
    if (file.name == nullptr) return missing("a file's name");
    if (file.bytes == nullptr) return missing(fmt::format("the bytes of {}", printable(file.name)));
    if (!made->emplace(file.name, std::string(static_cast<const char*>(file.bytes), file.size)).second)
      return invalid_argument("there are two files {}", printable(file.name));
  }
  return std::shared_ptr<const AdapterBytes>(std::move(made));
}

std::string adapters_json(const LLM& llm) {
  auto list = requests::Json::array();
  for (const auto& adapter : llm.adapters()) {
    auto& entry = list.emplace_back(requests::adapter_json(adapter));
    entry["path"] = adapter.path;
    entry["error"] = adapter.error;
  }
  return requests::dumped(list);
}

}  // namespace
}  // namespace choral

using choral::missing;
using choral::Status;

const char* choral_code_name(int32_t code) {
  if (code < CHORAL_OK || code > CHORAL_INTERNAL) return "unknown";
  return choral::code_name(static_cast<choral::Code>(code)).data();  // of a literal
}

const char* choral_version(void) { return choral::version().data(); }  // of a literal
int32_t choral_c_api_version(void) { return CHORAL_C_API_VERSION; }
void choral_free(void* memory) { std::free(memory); }

int32_t choral_engine_load(const char* options_json, choral_engine** engine, char** error) {
  return choral_engine_load_with_progress(options_json, nullptr, nullptr, engine, error);
}

int32_t choral_engine_load_with_progress(const char* options_json, choral_load_progress on_progress, void* context,
                                         choral_engine** engine, char** error) {
  if (engine != nullptr) *engine = nullptr;
  return choral::answered(error, [&]() -> Status {
    if (options_json == nullptr) return missing("options_json");
    if (engine == nullptr) return missing("engine");
    CHORAL_TRY(auto options, choral::requests::read_engine_options(options_json));
    if (on_progress != nullptr) {
      options.on_progress = [&](const choral::LoadProgress& p) {
        on_progress(context, std::string(p.phase).c_str(), std::string(p.detail).c_str(), p.fraction);
      };
    }
    auto made = std::make_unique<choral_engine>();
    CHORAL_TRY(made->llm, choral::LLM::load(std::move(options)));
    *engine = made.release();
    return {};
  });
}

void choral_engine_free(choral_engine* engine) { delete engine; }

int32_t choral_engine_info(choral_engine* engine, char** info_json, char** error) {
  if (info_json != nullptr) *info_json = nullptr;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) {
    if (info_json == nullptr) return missing("info_json");
    return choral::give(choral::requests::dumped(choral::requests::model_json(llm.info())), info_json);
  });
}

int32_t choral_engine_stats(choral_engine* engine, char** stats_json, char** error) {
  if (stats_json != nullptr) *stats_json = nullptr;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) {
    if (stats_json == nullptr) return missing("stats_json");
    return choral::give(choral::requests::dumped(choral::requests::stats_json(llm.stats())), stats_json);
  });
}

int32_t choral_engine_health(choral_engine* engine, int64_t limit_ms, char** error) {
  return choral::with_engine(engine, error, [&](choral::LLM& llm) {
    return llm.check_health(std::chrono::milliseconds(std::clamp<int64_t>(limit_ms, 0, choral::kDayMs)));
  });
}

int32_t choral_tokenize(choral_engine* engine, const char* text, size_t text_bytes, int32_t add_special_tokens,
                        int32_t** token_ids, size_t* token_count, char** error) {
  if (token_ids != nullptr) *token_ids = nullptr;
  if (token_count != nullptr) *token_count = 0;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) -> Status {
    if (text == nullptr) return missing("text");
    if (token_ids == nullptr || token_count == nullptr) return missing("token_ids or token_count");
    CHORAL_TRY(const auto ids, llm.tokenize({text, text_bytes}, add_special_tokens != 0));
    return choral::give(ids, token_ids, token_count);
  });
}

int32_t choral_detokenize(choral_engine* engine, const int32_t* token_ids, size_t token_count, int32_t skip_special_tokens,
                          char** text, size_t* text_bytes, char** error) {
  if (text != nullptr) *text = nullptr;
  if (text_bytes != nullptr) *text_bytes = 0;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) -> Status {
    if (token_ids == nullptr && token_count > 0) return missing("token_ids");
    if (text == nullptr || text_bytes == nullptr) return missing("text or text_bytes");
    const std::string made = llm.detokenize({token_ids, token_ids + token_count}, skip_special_tokens != 0);
    CHORAL_RETURN_IF_ERROR(choral::give(made, text));
    *text_bytes = made.size();
    return {};
  });
}

int32_t choral_apply_chat_template(choral_engine* engine, const char* request_json, char** prompt, char** error) {
  if (prompt != nullptr) *prompt = nullptr;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) -> Status {
    if (request_json == nullptr) return missing("request_json");
    if (prompt == nullptr) return missing("prompt");
    CHORAL_TRY(const auto line, choral::read_request(llm, request_json));
    CHORAL_TRY(const auto made, llm.apply_chat_template(line.request));
    return choral::give(made, prompt);
  });
}

int32_t choral_submit(choral_engine* engine, const char* request_json, choral_answer** answer, char** error) {
  if (answer != nullptr) *answer = nullptr;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) {
    if (request_json == nullptr) return missing("request_json");
    if (answer == nullptr) return missing("answer");
    return choral::submit(llm, request_json, *answer);
  });
}

int32_t choral_answer_next(choral_answer* answer, int64_t wait_ms, choral_piece* piece, char** error) {
  return choral::answered(error, [&]() -> Status {
    if (answer == nullptr) return missing("the answer");
    if (piece == nullptr) return missing("piece");
    if (piece->size < choral::kFirstPieceSize)
      return choral::invalid_argument("piece->size is {}; set it to sizeof(choral_piece), which is {}", piece->size,
                                      sizeof(choral_piece));
    const auto state = answer->taken ? choral::StreamState::kEnd : choral::next_event(*answer->stream, wait_ms, answer->event);
    choral_piece made = choral::piece_of(state, *answer);
    made.size = piece->size;
    std::memcpy(piece, &made, std::min<size_t>(piece->size, sizeof made));
    return {};
  });
}

int32_t choral_answer_on_ready(choral_answer* answer, choral_ready callback, void* context, char** error) {
  return choral::answered(error, [&]() -> Status {
    if (answer == nullptr) return missing("the answer");
    answer->stream->on_ready(callback != nullptr ? [=] { callback(context); } : std::function<void()>());
    return {};
  });
}

int32_t choral_answer_cancel(choral_answer* answer, char** error) {
  return choral::answered(error, [&]() -> Status {
    if (answer == nullptr) return missing("the answer");
    answer->stream->cancel();
    return {};
  });
}

int32_t choral_answer_wait(choral_answer* answer, char** answer_json, char** error) {
  if (answer_json != nullptr) *answer_json = nullptr;
  return choral::answered(error, [&]() -> Status {
    if (answer == nullptr) return missing("the answer");
    if (answer_json == nullptr) return missing("answer_json");
    return choral::take_whole(*answer, answer_json);
  });
}

void choral_answer_free(choral_answer* answer) { delete answer; }

int32_t choral_adapter_load(choral_engine* engine, const char* adapter_json, char** error) {
  return choral::with_engine(engine, error, [&](choral::LLM& llm) -> Status {
    if (adapter_json == nullptr) return missing("adapter_json");
    CHORAL_TRY(const auto load, choral::requests::read_adapter_load(adapter_json));
    return llm.load_adapter(load.spec, load.replace, load.expected_generation);
  });
}

int32_t choral_adapter_load_files(choral_engine* engine, const char* adapter_json, const choral_file* files, size_t file_count,
                                  char** error) {
  return choral::with_engine(engine, error, [&](choral::LLM& llm) -> Status {
    if (adapter_json == nullptr) return missing("adapter_json");
    if (files == nullptr) return missing("files");
    CHORAL_TRY(auto load, choral::requests::read_adapter_load(adapter_json));
    CHORAL_TRY(load.spec.bytes, choral::held({files, file_count}));
    return llm.load_adapter(load.spec, load.replace, load.expected_generation);
  });
}

int32_t choral_adapter_unload(choral_engine* engine, const char* name, char** error) {
  return choral::with_engine(engine, error,
                             [&](choral::LLM& llm) { return name == nullptr ? missing("name") : llm.unload_adapter(name); });
}

int32_t choral_adapter_pin(choral_engine* engine, const char* name, int32_t pinned, char** error) {
  return choral::with_engine(
      engine, error, [&](choral::LLM& llm) { return name == nullptr ? missing("name") : llm.pin_adapter(name, pinned != 0); });
}

int32_t choral_adapter_list(choral_engine* engine, char** adapters_json, char** error) {
  if (adapters_json != nullptr) *adapters_json = nullptr;
  return choral::with_engine(engine, error, [&](choral::LLM& llm) {
    if (adapters_json == nullptr) return missing("adapters_json");
    return choral::give(choral::adapters_json(llm), adapters_json);
  });
}
