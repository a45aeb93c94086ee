// The tokens with which a model that was trained for it fills a gap in a text, between what stands before and behind it. GGUF
// names them (tokenizer.ggml.fim_…_token_id); else they are known by what they spell in the families that have them. Pure; any
// thread.
#pragma once

#include <array>
#include <string_view>

#include "choral/types.h"
#include "text/tokenizer.h"

namespace choral::text {

// As GGUF's keys call them, in the order of FillTokens.
inline constexpr std::array<std::string_view, 6> kFillRoles{"fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"};

FillTokens fill_tokens(const Tokenizer& tokenizer);

}  // namespace choral::text
