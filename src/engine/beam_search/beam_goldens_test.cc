// Beam search against transformers: every token of every n-best list, and the scores. tests/golden/make_beam_goldens.py made
// them.
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/tiny_model_test.h"

namespace choral::engine {
namespace {

using nlohmann::json;

constexpr double kTolerance = 2e-3;  // of a token's log-probability, as of the first ones of tests/golden

std::map<std::string, std::vector<json>> goldens_by_model(const std::string& name) {
  std::map<std::string, std::vector<json>> goldens;
  std::ifstream file(testing::test_data("/goldens/" + name));
  for (std::string line; std::getline(file, line);) {
    json golden = json::parse(line);
    goldens[golden["model"]].push_back(std::move(golden));
  }
  return goldens;
}

Request request_of(const json& golden) {
  Request request;
  request.prompt_token_ids = golden["prompt_ids"].get<std::vector<int32_t>>();
  if (golden["adapter"] != "base") request.adapters = {{golden["adapter"]}};
  auto& sampling = request.sampling;
  sampling.n = golden["beams"];
  sampling.max_tokens = golden["max_tokens"];
  sampling.min_tokens = golden["min_tokens"];
  sampling.ignore_eos = true;
  sampling.stop_token_ids = golden["stop_ids"].get<std::vector<int32_t>>();
  sampling.beams = {.wanted = true, .length_penalty = golden["length_penalty"]};
  const json& early = golden["early_stopping"];
  sampling.beams.early_stopping = early == "never" ? EarlyStopping::kNever
                                  : early == true  ? EarlyStopping::kYes
                                                   : EarlyStopping::kNo;
  return request;
}

void expect_equal(const json& golden, const RequestOutput& output) {
  json told = golden;
  told.erase("answers");
  told.erase("scores");
  SCOPED_TRACE(told.dump());
  ASSERT_TRUE(output.status.ok()) << output.status.to_string();
  const auto wanted = golden["answers"].get<std::vector<std::vector<int32_t>>>();
  ASSERT_EQ(output.completions.size(), wanted.size());
  const auto stops = golden["stop_ids"].get<std::vector<int32_t>>();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Completion& answer = output.completions[i];
    ASSERT_EQ(answer.token_ids, wanted[i]) << "answer " << i;
    const auto tokens = static_cast<double>(wanted[i].size());
    const double tolerance = kTolerance * tokens / std::pow(tokens, golden["length_penalty"].get<double>());
    EXPECT_NEAR(answer.beam_score.value(), golden["scores"][i].get<double>(), tolerance) << "answer " << i;
    const bool stopped = std::find(stops.begin(), stops.end(), wanted[i].back()) != stops.end();
    EXPECT_EQ(answer.finish_reason, stopped ? FinishReason::kStop : FinishReason::kLength);
    EXPECT_EQ(answer.stop_reason, stopped ? std::to_string(wanted[i].back()) : "");
  }
}

// All searches of the model in one batch.
void expect_goldens(EngineOptions options, const std::vector<json>& goldens) {
  options.kv_cache_dtype = "float32";  // goldens are exact
  const auto llm = load_or_die(options);
  ASSERT_NE(llm, nullptr);
  std::vector<Request> requests;
  for (const auto& golden : goldens) requests.push_back(request_of(golden));
  const auto outputs = llm->generate(requests);
  for (size_t i = 0; i < goldens.size(); ++i) expect_equal(goldens[i], outputs[i]);
}

TEST(BeamGoldens, TinyModelsAndTheirAdaptersAnswerAsTransformers) {
  const auto models = goldens_by_model("beams.jsonl");
  ASSERT_EQ(models.size(), 2u);
  for (const auto& [model, goldens] : models) {
    auto options = tiny_options(model);
    const std::string adapter = model + "-lora-all";
    options.adapters = {{.name = adapter, .path = testing::test_data("/lora/" + adapter)}};
    EXPECT_GE(goldens.size(), 100u);
    expect_goldens(options, goldens);
  }
}

TEST(BeamGoldens, SmolLM2AnswersAsTransformers) {
  const char* const model = std::getenv("CHORAL_DEMO_MODEL");
  if (model == nullptr) GTEST_SKIP() << "CHORAL_DEMO_MODEL names no model";
  EngineOptions options;
  options.model = model;
  expect_goldens(options, goldens_by_model("smollm2-beams.jsonl").at("smollm2"));
}

}  // namespace
}  // namespace choral::engine
