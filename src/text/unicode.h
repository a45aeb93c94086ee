// The few Unicode facts the tokenizer's stages need, on UTF-8. Everything past sanitize_utf8 may rely on valid UTF-8.
// Properties come from utf8proc, corrected to what HF's tokenizers see (unicode_versions.h). All work is linear in the input,
// whatever the input is. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"

namespace choral::text {

constexpr uint32_t kReplacementChar = 0xFFFD;

// `in` itself when it is valid UTF-8, else a copy in `storage` with U+FFFD for each maximal broken part.
std::string_view sanitize_utf8(std::string_view in, std::string& storage);

void append_utf8(uint32_t code_point, std::string& out);

bool is_white_space(uint32_t c);  // property White_Space
bool is_numeric(uint32_t c);      // categories Nd, Nl, No
bool is_punctuation(uint32_t c);  // ASCII punctuation and categories P*
bool is_mark(uint32_t c);         // categories Mn, Mc, Me

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// False, with a part done, when more than `most_bytes` would be appended.
bool normalize_utf8(NormalForm form, std::string_view in, uint64_t most_bytes, std::string& appended);
void lowercase_utf8(std::string_view in, std::string& appended);  // full mapping, without context

}  // namespace choral::text
