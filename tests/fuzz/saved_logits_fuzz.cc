// Any bytes as a file of `choral eval --save-logits`. What is accepted is read to its last row, each an error or logits.
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "tools/eval/saved_logits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using choral::tools::SavedLogits;
  const auto saved = SavedLogits::parse({reinterpret_cast<const std::byte*>(data), size}, "fuzzed");
  if (!saved.ok()) return 0;
  const int64_t vocab = saved->header().vocab;
  CHORAL_CHECK(static_cast<uint64_t>(saved->rows() * choral::tools::saved_row_bytes(vocab)) <= size, "more rows than bytes");
  CHORAL_CHECK(saved->check_same(vocab, saved->header().windows).ok(), "a file that differs from itself");
  if (saved->rows() == 0) return 0;
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (int64_t row = 0; row < saved->rows(); ++row) {
    const auto score = saved->read_row(row, logits);
    if (!score.ok()) continue;
    CHORAL_CHECK(choral::tools::kl_divergence(logits, logits) == 0, "a row that differs from itself");
    CHORAL_CHECK(score->top >= 0 && score->top < vocab, "a token that is none");
  }
  return 0;
}
