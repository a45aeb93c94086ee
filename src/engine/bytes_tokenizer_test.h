// A tokenizer whose tokens are single bytes, and further ones where a test wants them.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace choral::engine {

inline std::shared_ptr<const text::Tokenizer> tokenizer_of_bytes(const std::vector<std::string>& more = {}) {
  text::GgufTokenizerData data;
  data.model = "llama";
  data.tokens = {"<unk>"};
  data.token_types = {2};
  for (int byte = 0; byte < 256; ++byte) {
    data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    data.token_types.push_back(6);
  }
  for (const auto& token : more) {
    data.tokens.push_back(token);
    data.token_types.push_back(1);
  }
  data.scores.assign(data.tokens.size(), 0.0F);
  data.unk_id = 0;
  data.add_bos = false;
  data.add_space_prefix = false;
  auto made = text::Tokenizer::from_gguf(data);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return *made;
}

}  // namespace choral::engine
