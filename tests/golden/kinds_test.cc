// Every kind of adapter against its definition: the engine with base and adapter, and the engine with a model whose weights have
// the adapter folded in by plain loops, must give the same tokens and log-probabilities. Prints the table of docs/adapters.md.
#include "golden/kinds.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

#include "choral/llm.h"
#include "golden/golden.h"
#include "support/temp_dir.h"
#include "support/test_paths.h"

namespace choral::golden {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr double kTolerance = 1e-3;     // of a log-probability; folding rounds the weights once more than the engine does
constexpr double kWorthTesting = 0.02;  // an adapter that changes less than this proves nothing

// The kind's adapter over its base, written to a folder.
class KindsTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    auto base = read_weights(base_path_);
    ASSERT_TRUE(base.ok()) << base.status().to_string();
    base_ = std::move(*base);
    adapter_.emplace(base_, /*rank=*/4, /*alpha=*/8);
    GetParam().build(*adapter_, base_);
    ASSERT_TRUE(write_adapter(dir_.path() / "adapter", *adapter_).ok());
  }

  const fs::path base_path_ = fs::path(testing::test_data("/models")) / GetParam().model;
  WeightSet base_;
  const testing::TempDir dir_;
  std::optional<AdapterKind> adapter_;
};

void write_merged(const fs::path& folder, const fs::path& base, const AdapterKind& kind) {
  fs::create_directories(folder);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
    fs::copy_file(base / file, folder / file);
  Json config = Json::parse(std::ifstream(base / "config.json"));
  config.erase("dtype");
  config["torch_dtype"] = "float32";
  config["vocab_size"] = config["vocab_size"].get<int64_t>() + kind.own_tokens;
  if (kind.unties) config["tie_word_embeddings"] = false;
  std::ofstream(folder / "config.json") << config.dump(1);
  ASSERT_TRUE(write_weights(folder / "model.safetensors", kind.merged).ok());
}

constexpr int32_t kVocabulary = 4096;  // of every base here

std::vector<Request> prompts(const std::string& adapter, int64_t own_tokens) {
  std::vector<Request> requests;
  uint32_t seed = 5;
  for (const int length : {1, 9, 40}) {
    Request request;
    for (int i = 0; i < length; ++i)
      request.prompt_token_ids.push_back(static_cast<int32_t>((seed = seed * 1664525u + 1013904223u) >> 20));
    request.prompt_token_ids.back() = 17;  // a trained token
    for (int32_t i = 1; i < length && i <= own_tokens; ++i) request.prompt_token_ids[i] = kVocabulary + i - 1;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = 8;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 20;
    if (!adapter.empty()) request.adapters.push_back({adapter});
    requests.push_back(std::move(request));
  }
  return requests;
}

// The largest difference of a log-probability over the steps up to which both chose the same tokens; infinite when they part with
// no near-tie to excuse it.
double worst_difference(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &x = a[i].completions.at(0), &y = b[i].completions.at(0);
    for (size_t step = 0; step < x.token_ids.size(); ++step) {
      for (const auto& token : x.logprobs[step].top) {
        for (const auto& other : y.logprobs[step].top) {
          if (token.token_id == other.token_id)
            worst = std::max(worst, std::abs(static_cast<double>(token.logprob) - other.logprob));
        }
      }
      if (x.token_ids[step] == y.token_ids[step]) continue;
      const auto& top = x.logprobs[step].top;
      if (top[0].logprob - top[1].logprob > 2 * kTolerance) return INFINITY;
      break;
    }
  }
  return worst;
}

// The largest difference at the first step: what the adapter does to a prompt.
double first_step_difference(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto &x = a[i].completions.at(0).logprobs.at(0).top, &y = b[i].completions.at(0).logprobs.at(0).top;
    for (size_t t = 0; t < x.size(); ++t) worst = std::max(worst, std::abs(static_cast<double>(x[t].logprob) - y[t].logprob));
  }
  return worst;
}

// With the adapter that lies in `adapter_path`, called "it"; none where this is empty. Null when it does not load.
std::unique_ptr<LLM> load(const fs::path& model, const std::string& adapter_path, const char* speculative = "ngram") {
  EngineOptions options{.model = model.string(), .kv_cache_dtype = "float32", .device = test_device(), .threads = 2};
  options.speculative = speculative;
  if (!adapter_path.empty()) options.adapters.push_back({"it", adapter_path});
  auto llm = LLM::load(options);
  if (llm.ok()) return std::move(*llm);
  ADD_FAILURE() << llm.status().to_string();
  return nullptr;
}

std::vector<RequestOutput> answers(const fs::path& model, const std::string& adapter_path, int64_t own_tokens) {
  const auto llm = load(model, adapter_path);
  if (llm == nullptr) return {};
  auto outputs = llm->generate(prompts(adapter_path.empty() ? "" : "it", own_tokens));
  for (const auto& output : outputs) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
  return outputs;
}

// Whether a token beyond the base's is among the most likely ones somewhere.
bool names_own_token(const std::vector<RequestOutput>& outputs) {
  for (const auto& output : outputs) {
    for (const auto& position : output.completions.at(0).logprobs) {
      for (const auto& token : position.top) {
        if (token.token_id >= kVocabulary) return true;
      }
    }
  }
  return false;
}

TEST_P(KindsTest, EqualsItsDefinition) {
  ASSERT_NO_FATAL_FAILURE(write_merged(dir_.path() / "merged", base_path_, *adapter_));
  const auto plain = answers(base_path_, "", 0);
  const auto adapted = answers(base_path_, dir_ / "adapter", adapter_->own_tokens);
  const auto merged = answers(dir_.path() / "merged", "", adapter_->own_tokens);
  ASSERT_FALSE(HasFailure());
  const double error = worst_difference(adapted, merged), effect = first_step_difference(adapted, plain);
  EXPECT_LT(error, kTolerance);
  EXPECT_GT(effect, kWorthTesting) << "the adapter does nothing to speak of";
  EXPECT_EQ(names_own_token(adapted), adapter_->own_tokens > 0);
  std::printf("| %s | %s | max difference %.1e (effect %.2g) |\n", GetParam().name, GetParam().model, error, effect);
}

// Copies to the host while each prompt is answered alone, by an adapter that has come to the device.
int64_t host_copies(const fs::path& model, const std::string& adapter_path) {
  const auto llm = load(model, adapter_path, "off");  // copies are a step's, and guesses make fewer steps
  if (llm == nullptr) return 0;
  const auto copies_after = [&](std::vector<Request> requests) {
    for (auto& request : requests) {
      for (const auto& output : llm->generate({std::move(request)})) EXPECT_TRUE(output.status.ok()) << output.status.to_string();
    }
    while (llm->stats().running > 0) std::this_thread::yield();  // the last step's count comes after its token
    return llm->stats().host_copies;
  };
  const auto all = prompts(adapter_path.empty() ? "" : "it", 0);
  const int64_t before = copies_after({all.front()});
  return copies_after(all) - before;
}

TEST_P(KindsTest, NoRowOfADeviceComesToTheHostForIt) {
  if (test_device() == "auto") GTEST_SKIP() << "the host's memory is this device's";
  if (adapter_->own_tokens > 0) GTEST_SKIP() << "its rows have no place on the device, and a note says so";
  const bool absorbed = std::any_of(adapter_->files.begin(), adapter_->files.end(),
                                    [](const auto& tensor) { return tensor.first.find(".kv_b_proj.") != tensor.first.npos; });
  if (absorbed) GTEST_SKIP() << "its pair meets queries the other way round, which no stack of slots has";
  const int64_t without = host_copies(base_path_, "");
  EXPECT_GT(without, 0) << "logits come to the host, or nothing is counted";
  EXPECT_EQ(host_copies(base_path_, dir_ / "adapter"), without);
}

INSTANTIATE_TEST_SUITE_P(Adapters, KindsTest, ::testing::ValuesIn(all_kinds().begin(), all_kinds().end()),
                         [](const auto& tested) {
                           std::string name;
                           for (const char c :
                                fmt::format("{} {}", tested.param.name, std::string(tested.param.model).substr(5))) {
                             if (std::isalnum(static_cast<unsigned char>(c)))
                               name += c;
                             else if (!name.empty() && name.back() != '_')
                               name += '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace choral::golden
