// Any text is read or refused. And what a stream with any tokens says of itself is read back as it was said: the first byte is
// 'w', each of the others a token, an end (255) or where chunks end (254).
#include <cstdint>
#include <cstdlib>
#include <string>

#include "serve/openai/resume_token.h"

namespace {

using namespace choral::serve;

void write_and_read(const uint8_t* data, size_t size) {
  constexpr uint8_t kEnd = 255, kChunk = 254;
  ResumeOrigin origin{.fingerprint = "fp", .seed = size * 0x9E3779B97F4A7C15U, .prompt = "aa", .adapters = {"bb"}};
  ResumeWriter writer(/*goes_on=*/false);
  std::vector<choral::GivenAnswer> told(4);
  std::string text = writer.take(origin);
  for (size_t i = 0; i < size; ++i) {
    choral::StreamEvent event;
    event.index = static_cast<int>(i % told.size());
    auto& answer = told[i % told.size()];
    if (data[i] == kEnd) {
      event.finish_reason = choral::FinishReason::kStop;
      answer.ended = true;
    } else {
      event.token_ids.assign(data[i] % 3U, static_cast<int32_t>(data[i]) * 8'000'000);
      answer.token_ids.insert(answer.token_ids.end(), event.token_ids.begin(), event.token_ids.end());
    }
    writer.add(event);
    if (data[i] == kChunk) text += writer.take(origin);
  }
  text += writer.take(origin);
  auto read = read_resume_token(text);
  if (!read.ok() || !(read->origin == origin)) std::abort();
  read->given.resize(told.size());
  for (size_t i = 0; i < told.size(); ++i) {
    if (read->given[i].token_ids != told[i].token_ids || read->given[i].ended != told[i].ended) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 'w') {
    write_and_read(data + 1, size - 1);
    return 0;
  }
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = read_resume_token(text);
  if (read.ok() && read->given.size() > 128) std::abort();
  return 0;
}
