// Expected answers of the reference implementation (float32, batch 1): one line a prompt of tests/data/goldens/*.jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace choral::golden {

struct Golden {
  std::string model;
  std::string adapter;  // "base" or its name
  std::string prompt_id;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> greedy_ids;
  std::vector<double> gaps;      // first minus second logit at each step: below our error a different choice is legitimate
  std::vector<int32_t> top_ids;  // of the first step
  std::vector<double> top_logprobs;
  double top_logit = 0;
};

// The device of this run: "auto", or the plug-in that CHORAL_TEST_DEVICE names, found in the folders of CHORAL_TEST_PLUGINS.
std::string test_device();

// `model` empty: all lines.
std::vector<Golden> read_goldens(const std::string& path, const std::string& model);

struct TokenizerGolden {
  std::string text;
  std::vector<int32_t> ids;  // without special tokens added
  std::string decoded;
};

std::vector<TokenizerGolden> read_tokenizer_goldens(const std::string& path);

}  // namespace choral::golden
