// Every scheme within whole models that run: each linear layer gives its formula, an adapter's share being that of the float x,
// and so an adapter changes the model's answers as it changes those of the formula.
#include "tools/quantize/linear_formula_test.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "base/float8.h"
#include "engine/adapters/adapter_files_test.h"
#include "quant/rounded_weight.h"
#include "tools/quantize.h"

namespace choral::tools {
namespace {

using engine::load_or_die;
using engine::tiny_options;
namespace fs = std::filesystem;

constexpr double kScaling = 2;  // alpha / r of synthetic adapters

struct Scheme {
  std::string name;
  int bits;  // of integers; 0: e4m3; 16: as stored
  InputRounding rounding;
  std::string activations = "auto";
  std::string format = "";  // of a checkpoint that is written; empty: rounded in flight
};
const std::vector<Scheme> kSchemes{
    {"auto", 16, InputRounding::kNone},
    {"fp8", 0, InputRounding::kNone},
    {"w8a16", 8, InputRounding::kTwice},
    {"w4a16", 4, InputRounding::kTwice},
    {"w8a16", 8, InputRounding::kBlocks, "int8"},
    {"w4a16", 4, InputRounding::kBlocks, "int8"},
    {"w8a8_dynamic", 8, InputRounding::kRow},
    {"w4a8_dynamic", 4, InputRounding::kRow},
    {"w8a8", 8, InputRounding::kFixed, "auto", "compressed-tensors"},
    {"w8a8", 8, InputRounding::kFixed, "auto", "modelslim"},
};

// W of each linear layer as the scheme's rounding leaves it.
LinearFormula formula_in_flight(const fs::path& model, const Scheme& scheme) {
  LinearFormula formula(scheme.rounding);
  ThreadPool pool(1);
  Arena scratch;
  const kernels::Context ctx{pool, cpu_level(), scratch};
  const auto source = *io::Checkpoint::open(model);
  for (const auto& name : source->names()) {
    if (!name.ends_with("_proj.weight")) continue;
    const auto layer = name.substr(0, name.rfind('.'));
    const auto weight = source->find(name)->view;
    FormulaMember& member = formula.member(layer);
    member.rows = weight.rows();
    member.k = weight.cols();
    auto w = floats_of(weight);
    if (scheme.bits == 0) {
      const auto rounded = *quant::round_to_fp8(ctx, weight, name);
      for (size_t i = 0; i < w.size(); ++i) w[i] = to_float(rounded.codes.as<Float8E4M3>()[i]) * rounded.scales[i / member.k];
      member.w.assign(w.begin(), w.end());
    } else if (scheme.bits == 16) {
      member.w.assign(w.begin(), w.end());
    } else {
      const auto rounded = *quant::round_to_int(ctx, weight, scheme.bits, name);
      const int64_t group = rounded.group_size == 0 ? member.k : rounded.group_size;
      for (size_t i = 0; i < w.size(); ++i)
        member.w.push_back(static_cast<double>(rounded.codes.as<int8_t>()[i]) * rounded.scales[i / group]);
    }
    if (!source->contains(layer + ".bias")) continue;
    const auto bias = floats_of(*source, layer + ".bias");
    member.bias.assign(bias.begin(), bias.end());
  }
  return formula;
}

// A model of a scheme with an adapter, and its formula.
class Subject {
 public:
  Subject(const std::string& model, const Scheme& scheme) : options_(tiny_options(model)), formula_(scheme.rounding) {
    const engine::AdapterFiles files(model);
    const fs::path adapter = files.write("a", 8, 1);
    fs::copy(adapter, folder_.path() / "a");
    const fs::path source = options_.model;
    options_.activations = scheme.activations;
    options_.adapters = {{"a", (folder_.path() / "a").string()}};
    if (scheme.format.empty()) {
      options_.quantization = scheme.name;
      formula_ = formula_in_flight(source, scheme);
    } else {
      options_.model = (folder_.path() / "written").string();
      write(source, scheme);
      formula_ = formula_of_w8a8(source, options_.model);
    }
    formula_.read_adapter(folder_.path() / "a", kScaling);
  }

  const EngineOptions& options() const { return options_; }
  LinearFormula& formula() { return formula_; }

 private:
  void write(const fs::path& source, const Scheme& scheme) {
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("Item {} of 60: {} Äpfel.\n", i, i * 37 % 101);
    // Something for every expert.
    std::mt19937 random(1);
    for (int i = 0; i < 4000; ++i) text += static_cast<char>(random() % 5 == 0 ? ' ' : 'A' + random() % 58);
    const auto quantizer = CheckpointQuantizer::open({.model = source.string(),
                                                      .out = options_.model,
                                                      .scheme = scheme.name,
                                                      .format = scheme.format,
                                                      .calibration = CalibrationText{.text = text, .name = "items.txt"},
                                                      .threads = 2});
    ASSERT_TRUE(quantizer.ok()) << quantizer.status().to_string();
    const auto written = (*quantizer)->write();
    ASSERT_TRUE(written.ok()) << written.status().to_string();
  }

  choral::testing::TempDir folder_;
  EngineOptions options_;
  LinearFormula formula_;
};

// The log-probabilities of a prompt's tokens.
std::vector<double> logprobs(LLM& llm, bool with_adapter, int prompt_tokens = 60, uint32_t seed = 7) {
  auto request = engine::greedy_request(engine::random_prompt(prompt_tokens, seed), 3);
  request.sampling.prompt_logprobs = 1;
  if (with_adapter) request = engine::with_adapters(std::move(request), {{"a"}});
  const auto answer = llm.generate({request}).front();
  EXPECT_TRUE(answer.status.ok()) << answer.status.to_string();
  std::vector<double> out;
  for (const auto& token : answer.prompt_logprobs) out.push_back(token.chosen.logprob);
  return out;
}

TEST(LinearFormula, IsWhatEveryLayerOfEverySchemeGivesWithAnAdapterAndWithout) {
  // q, k, v, o of four layers; gate, up and down of them, or of one and of two experts a row in the others.
  constexpr int64_t kAttention = 4 * (64 + 32 + 32 + 64), kMlp = 128 + 128 + 64, kExpert = 32 + 32 + 64;
  struct Model {
    const char* name;
    int64_t outputs;  // of a row
  };
  for (const auto& [model, outputs] : {Model{"tiny-llama3", kAttention + 4 * kMlp}, Model{"tiny-qwen2", kAttention + 4 * kMlp},
                                       Model{"tiny-qwen3moe", kAttention + kMlp + 3 * 2 * kExpert}}) {
    for (const auto& scheme : kSchemes) {
      SCOPED_TRACE(fmt::format("{} {} {} {}", model, scheme.name, scheme.activations, scheme.format));
      Subject subject(model, scheme);
      const auto llm = load_or_die(held_to(subject.formula(), subject.options()));
      for (const bool with_adapter : {false, true}) {
        const int64_t before = subject.formula().outputs();
        subject.formula().set_adapter(with_adapter);
        logprobs(*llm, with_adapter);
        EXPECT_EQ(subject.formula().outputs() - before, 62 * outputs);
        EXPECT_LE(subject.formula().farthest(), 1) << subject.formula().farthest_place();
      }
    }
  }
}

double norm(const std::vector<double>& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum);
}

// By how much the adapter moves each log-probability. In one or another of the prompts a value that lies on the border of two
// integers falls to the other side by the last bit of a float32 sum, and moves all that follows; not in most.
TEST(LinearFormula, AnAdapterMovesTheAnswersAsItMovesThoseOfTheFormula) {
  for (const auto& scheme : kSchemes) {
    SCOPED_TRACE(fmt::format("{} {} {}", scheme.name, scheme.activations, scheme.format));
    Subject subject("tiny-llama3", scheme);
    const auto llm = load_or_die(subject.options());
    subject.formula().stand_in();
    const auto in_float64 = load_or_die(held_to(subject.formula(), subject.options()));
    std::vector<double> off;  // of each prompt, as a part of what the adapter does
    for (uint32_t seed = 1; seed <= 15; ++seed) {
      const auto run = [&](LLM& model, bool with_adapter) {
        subject.formula().set_adapter(with_adapter);
        return logprobs(model, with_adapter, 8, seed);
      };
      auto wanted = run(*in_float64, true), got = run(*llm, true);
      const auto wanted_base = run(*in_float64, false), got_base = run(*llm, false);
      for (size_t i = 0; i < wanted.size(); ++i) {
        wanted[i] -= wanted_base[i];
        got[i] -= got_base[i] + wanted[i];
      }
      ASSERT_GT(norm(wanted), 0.1) << "the adapter does nothing";
      off.push_back(norm(got) / norm(wanted));
    }
    std::sort(off.begin(), off.end());
    EXPECT_LT(off[off.size() / 2], 0.002) << fmt::format("{}", fmt::join(off, " "));
    if (scheme.rounding == InputRounding::kNone || scheme.rounding == InputRounding::kTwice) {
      EXPECT_LT(off.back(), 0.01);
    }
  }
}

}  // namespace
}  // namespace choral::tools
