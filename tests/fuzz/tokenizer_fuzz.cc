// A mutated tokenizer.json, a zero byte, and a text to encode, decode and stream; what GGUF says of the tokenizer. The text is
// also repeated until it is so large that what it may cost by its size is most of its budget: work that is not paid for is seen
// by the time limit of `./dev fuzz`, as it is many times what the budget allows; memory by the memory limit.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/gguf_tokenizer.h"
#include "text/stream_detokenizer.h"
#include "text/tokenizer.h"

namespace {

constexpr size_t kLarge = 1 << 14;
constexpr size_t kMaxTokens = 64;
constexpr choral::text::EncodeLimits kLimits{.free_work = 1 << 19, .free_growth = 1 << 16};

void encode_large(const choral::text::Tokenizer& tokenizer, std::string_view text) {
  if (text.empty()) return;
  std::string large;
  while (large.size() < kLarge) large += text;
  static_cast<void>(tokenizer.encode(large, {.limits = kLimits}).ok());
  const auto bounded = tokenizer.encode(large, {.add_special_tokens = false, .max_tokens = kMaxTokens, .limits = kLimits});
  if (bounded.ok() && bounded->size() > kMaxTokens) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace choral::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view text = (cut == std::string_view::npos ? input : input.substr(cut + 1)).substr(0, kLarge);
  const auto tokenizer = Tokenizer::from_json(input.substr(0, cut), R"({"clean_up_tokenization_spaces":true})");
  if (!tokenizer.ok()) return 0;
  static_cast<void>(gguf_tokenizer_data(**tokenizer, input.substr(0, cut)).ok());
  encode_large(**tokenizer, text);
  const auto ids = (*tokenizer)->encode(text, {.limits = kLimits});
  if (!ids.ok()) return 0;
  for (const bool skip : {false, true}) {
    const std::string whole = (*tokenizer)->decode(*ids, {.skip_special_tokens = skip});
    StreamDetokenizer stream(*tokenizer, {.skip_special_tokens = skip});
    std::string streamed;
    for (const int32_t id : *ids) stream.push(id, streamed);
    if (streamed + stream.finish() != whole) std::abort();
  }
  return 0;
}
