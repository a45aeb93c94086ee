// A mutated tokenizer.json, a zero byte, and a text to encode, decode and stream.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/stream_detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace choral::text;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const std::string_view text = cut == std::string_view::npos ? input : input.substr(cut + 1);
  const auto tokenizer = Tokenizer::from_json(input.substr(0, cut), R"({"clean_up_tokenization_spaces":true})");
  if (!tokenizer.ok()) return 0;
  const auto ids = (*tokenizer)->encode(text);
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
