#include "golden/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/test_paths.h"

namespace choral::golden {

std::vector<Golden> read_goldens(const std::string& path, const std::string& model) {
  std::vector<Golden> goldens;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    Golden g;
    g.model = json.value("model", "");
    if (!model.empty() && g.model != model) continue;
    g.adapter = json.at("adapter").get<std::string>();
    g.prompt_id = json.at("prompt_id").get<std::string>();
    g.prompt_ids = json.at("prompt_ids").get<std::vector<int32_t>>();
    g.greedy_ids = json.at("greedy_ids").get<std::vector<int32_t>>();
    g.gaps = json.at("gaps").get<std::vector<double>>();
    g.top_ids = json.at("top10").at("ids").get<std::vector<int32_t>>();
    const auto logsumexp = json.at("logsumexp").get<double>();
    const auto logits = json.at("top10").at("values").get<std::vector<double>>();
    for (const double value : logits) g.top_logprobs.push_back(value - logsumexp);
    g.top_logit = logits.front();
    goldens.push_back(std::move(g));
  }
  return goldens;
}

std::vector<TokenizerGolden> read_tokenizer_goldens(const std::string& path) {
  std::vector<TokenizerGolden> goldens;
  std::ifstream file(path);
  EXPECT_TRUE(file.is_open()) << path;
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    goldens.push_back(
        {json.at("text").get<std::string>(), json.at("ids").get<std::vector<int32_t>>(), json.at("decoded").get<std::string>()});
  }
  return goldens;
}

std::string test_device() {
  const char* device = std::getenv("CHORAL_TEST_DEVICE");
  if (device == nullptr) return "auto";
  setenv("CHORAL_PLUGIN_PATH", testing::from_environment("CHORAL_TEST_PLUGINS", CHORAL_TEST_PLUGINS).c_str(), 1);
  return device;
}

}  // namespace choral::golden
