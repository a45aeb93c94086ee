// An engine on one of the test plug-ins: environment, options, answers.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/tiny_model_test.h"

namespace choral::plugins {

// An environment variable for the life of this object.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class PluginTest : public ::testing::Test {
 protected:
  static EngineOptions options(const std::string& device, const std::string& model = "tiny-qwen3") {
    auto options = engine::tiny_options(model);
    options.device = device;
    options.kv_cache_dtype = "float32";  // as it is compared with the CPU's
    return options;
  }
  static std::unique_ptr<LLM> load(const EngineOptions& options) { return engine::load_or_die(options); }
  // Three prompts of different lengths in one batch, greedy, with log-probabilities.
  static std::vector<RequestOutput> answers(LLM& llm, int tokens = 8) {
    std::vector<Request> requests;
    for (const int length : {3, 40, 9}) {
      std::vector<int32_t> prompt;
      for (int i = 0; i < length; ++i) prompt.push_back((length * 131 + i * 37) % 4000);
      requests.push_back(engine::greedy_request(std::move(prompt), tokens));
    }
    return llm.generate(std::move(requests));
  }
  static std::vector<RequestOutput> cpu_answers(const std::string& model = "tiny-qwen3") {
    return answers(*load(options("cpu", model)));
  }
  // The same tokens, log-probabilities within a device's rounding.
  static void expect_equal(const std::vector<RequestOutput>& got, const std::vector<RequestOutput>& wanted,
                           double within = 1e-3) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(got[i].status.ok()) << got[i].status.to_string();
      const auto &a = got[i].completions.at(0), &b = wanted[i].completions.at(0);
      ASSERT_EQ(a.token_ids, b.token_ids) << "request " << i;
      for (size_t t = 0; t < a.logprobs.size(); ++t) {
        EXPECT_NEAR(a.logprobs[t].chosen.logprob, b.logprobs[t].chosen.logprob, within) << "request " << i << ", token " << t;
      }
    }
  }

 private:
  Variable path_{"CHORAL_PLUGIN_PATH", CHORAL_TEST_PLUGINS};
};

}  // namespace choral::plugins
