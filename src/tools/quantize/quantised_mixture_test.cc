// Mixtures whose files are quantised, in each form in which such files are published: every linear layer, experts among them,
// gives the formula of its file's integers, with adapters of experts and without, and a row of a mix has the bits of its answer
// alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/float8.h"
#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"
#include "io/safetensors_writer.h"
#include "tools/quantize/linear_formula_test.h"

namespace choral::tools {
namespace {

using engine::load_or_die;
using engine::tiny_options;
namespace fs = std::filesystem;

constexpr int64_t kGroup = 32, kBlock = 32;

// A weight as whole numbers: w[r, i] = (q[r, i] - zero[r, g]) · scale[r, g], scales of 16-bit floats.
struct Whole {
  int64_t rows, k, group;
  std::vector<int> q;      // 0 to 2^bits - 1
  std::vector<int> zeros;  // [rows, groups]
  std::vector<float> scales;

  int64_t groups() const { return (k + group - 1) / group; }
  int at(int64_t r, int64_t i) const { return q[r * k + i]; }
};

// group_of(i): of column i.
template <class GroupOf>
Whole round_to_whole(const std::vector<float>& w, int64_t rows, int bits, int64_t group, bool symmetric, GroupOf group_of) {
  const int64_t k = std::ssize(w) / rows;
  Whole out{rows, k, group, std::vector<int>(w.size()), {}, {}};
  const int most = (1 << bits) - 1, middle = 1 << (bits - 1);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t g = 0; g < out.groups(); ++g) {
      float low = 0, high = 0;
      for (int64_t i = 0; i < k; ++i) {
        if (group_of(i) != g) continue;
        low = std::min(low, w[r * k + i]), high = std::max(high, w[r * k + i]);
      }
      const float step =
          symmetric ? std::max(-low, high) / static_cast<float>(middle - 1) : (high - low) / static_cast<float>(most);
      const float scale = to_float(to_float16(std::max(step, 1e-4f)));
      // Version 1 of GPTQ stores a zero point less one.
      const int zero = symmetric ? middle : std::clamp(static_cast<int>(std::lround(-low / scale)), 1, most);
      out.scales.push_back(scale);
      out.zeros.push_back(zero);
      for (int64_t i = 0; i < k; ++i) {
        if (group_of(i) != g) continue;
        out.q[r * k + i] = std::clamp(static_cast<int>(std::lround(w[r * k + i] / scale)) + zero, 0, most);
      }
    }
  }
  return out;
}

// The files of a model: its tensors in a form, and the same numbers as float32.
class WrittenModel {
 public:
  template <class T>
  void add(const std::string& name, DType type, const Shape& shape, const std::vector<T>& values) {
    Tensor& tensor = owned_.emplace_back(*Tensor::allocate(type, shape));
    CHORAL_CHECK(tensor.size_bytes() == std::ssize(values) * static_cast<int64_t>(sizeof(T)), "a tensor's values are all there");
    std::memcpy(tensor.data(), values.data(), values.size() * sizeof(T));
    quantised_.push_back({name, tensor.view()});
  }
  // Of columns of the float weight in order.
  template <class GroupOf>
  void expect(const std::string& layer, const Whole& whole, int bits, GroupOf group_of) {
    FormulaMember& member = formula_.member(layer);
    member.rows = whole.rows;
    member.k = whole.k;
    const int middle = 1 << (bits - 1);
    for (int64_t r = 0; r < whole.rows; ++r) {
      for (int64_t i = 0; i < whole.k; ++i) {
        const int64_t g = r * whole.groups() + group_of(i);
        const double scale = whole.scales[g];
        member.w.push_back(scale * (whole.at(r, i) - middle));
        member.shift.push_back(-scale * (whole.zeros[g] - middle));
      }
    }
  }
  void expect(const std::string& layer, int64_t rows, const std::vector<float>& w) {
    FormulaMember& member = formula_.member(layer);
    member.rows = rows;
    member.k = std::ssize(w) / rows;
    member.w.assign(w.begin(), w.end());
  }

  explicit WrittenModel(InputRounding rounding) : formula_(rounding) {}
  LinearFormula& formula() { return formula_; }
  void keep(const std::string& name, const TensorView& view) {
    quantised_.push_back({name, view});
    wide_.push_back({name, view});
  }
  // What the formula has of `layer`, as float32.
  void add_wide(const std::string& layer) {
    const FormulaMember& member = formula_.member(layer);
    Tensor& tensor = owned_.emplace_back(*Tensor::allocate(DType::kF32, {member.rows, member.k}));
    for (int64_t i = 0; i < member.rows * member.k; ++i) {
      tensor.as<float>()[i] = static_cast<float>(member.w[i] + (member.shift.empty() ? 0 : member.shift[i]));
    }
    wide_.push_back({layer + ".weight", tensor.view()});
  }
  void write(const fs::path& model, const std::string& quantization_config) {
    const auto write_to = [&](const choral::testing::TempDir& folder, const auto& tensors, const std::string& members) {
      CHORAL_CHECK(io::write_safetensors(folder.path() / "model.safetensors", tensors).ok(), "the checkpoint is written");
      for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) {
        if (fs::exists(model / file)) fs::copy(model / file, folder.path());
      }
      auto config = *io::read_whole_file(model / "config.json", 1 << 20);
      folder.write("config.json", config.insert(config.find('{') + 1, members));
    };
    write_to(quantised_folder_, quantised_, "\"quantization_config\": " + quantization_config + ",");
    write_to(wide_folder_, wide_, "");
  }
  EngineOptions options() const { return options_of(quantised_folder_); }
  EngineOptions wide_options() const { return options_of(wide_folder_); }

 private:
  static EngineOptions options_of(const choral::testing::TempDir& folder) {
    auto options = tiny_options();
    options.model = folder.path().string();
    return options;
  }

  LinearFormula formula_;
  std::deque<Tensor> owned_;
  std::vector<io::TensorToWrite> quantised_, wide_;
  choral::testing::TempDir quantised_folder_, wide_folder_;
};

std::vector<uint16_t> halves(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float value : values) out.push_back(to_float16(value).bits);
  return out;
}

std::vector<float> transposed(const std::vector<float>& values, int64_t rows) {
  const int64_t cols = std::ssize(values) / rows;
  std::vector<float> out;
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) out.push_back(values[r * cols + c]);
  }
  return out;
}

// compressed-tensors, a byte each with a scale a channel, activations int8 for each token.
void write_int8(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows) {
  const int64_t k = std::ssize(w) / rows;
  const auto all = [](int64_t) { return 0; };
  const Whole whole = round_to_whole(w, rows, 8, k, true, all);
  std::vector<int8_t> bytes;
  for (const int q : whole.q) bytes.push_back(static_cast<int8_t>(q - 128));
  model.add(layer + ".weight", DType::kI8, {rows, k}, bytes);
  model.add(layer + ".weight_scale", DType::kF32, {rows, 1}, whole.scales);
  model.expect(layer, whole, 8, all);
}

// compressed-tensors, eight along k in a word.
void write_packed_int4(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows) {
  const int64_t k = std::ssize(w) / rows;
  const auto group_of = [](int64_t i) { return i / kGroup; };
  const Whole whole = round_to_whole(w, rows, 4, kGroup, true, group_of);
  std::vector<int32_t> words(rows * k / 8);
  for (int64_t i = 0; i < rows * k; ++i) words[i / 8] |= static_cast<int32_t>(static_cast<uint32_t>(whole.q[i]) << 4 * (i % 8));
  model.add(layer + ".weight_packed", DType::kI32, {rows, k / 8}, words);
  model.add(layer + ".weight_scale", DType::kF16, {rows, whole.groups()}, halves(whole.scales));
  model.add(layer + ".weight_shape", DType::kI64, {2}, std::vector<int64_t>{rows, k});
  model.expect(layer, whole, 4, group_of);
}

// GPTQ: down the columns, columns of k in groups by importance, zero points less one.
void write_gptq(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows) {
  const int64_t k = std::ssize(w) / rows;
  const auto group_of = [k](int64_t i) { return i * 7 % k / kGroup; };  // 7 divides no k here
  const Whole whole = round_to_whole(w, rows, 4, kGroup, false, group_of);
  const int64_t groups = whole.groups();
  std::vector<int32_t> words(rows * k / 8), zeros(groups * rows / 8), g_idx;
  const auto put = [](int32_t& word, int64_t place, int value) {
    word |= static_cast<int32_t>(static_cast<uint32_t>(value) << 4 * place);
  };
  for (int64_t i = 0; i < k; ++i) {
    g_idx.push_back(static_cast<int32_t>(group_of(i)));
    for (int64_t r = 0; r < rows; ++r) put(words[i / 8 * rows + r], i % 8, whole.at(r, i));
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t r = 0; r < rows; ++r) put(zeros[g * (rows / 8) + r / 8], r % 8, whole.zeros[r * groups + g] - 1);
  }
  model.add(layer + ".qweight", DType::kI32, {k / 8, rows}, words);
  model.add(layer + ".qzeros", DType::kI32, {groups, rows / 8}, zeros);
  model.add(layer + ".scales", DType::kF16, {groups, rows}, halves(transposed(whole.scales, rows)));
  model.add(layer + ".g_idx", DType::kI32, {k}, g_idx);
  model.expect(layer, whole, 4, group_of);
  auto& order = model.formula().member(layer).order;  // groups stand together in memory
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = 0; i < k; ++i) {
      if (group_of(i) == g) order.push_back(i);
    }
  }
}

// AWQ: eight channels in a word, in its order.
void write_awq(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  const int64_t k = std::ssize(w) / rows;
  const auto group_of = [](int64_t i) { return i / kGroup; };
  const Whole whole = round_to_whole(w, rows, 4, kGroup, false, group_of);
  const int64_t groups = whole.groups();
  const auto pack = [&](int64_t count, auto value) {
    std::vector<int32_t> words(count * rows / 8);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < rows / 8; ++c) {
        uint32_t word = 0;
        for (int place = 0; place < 8; ++place) word |= static_cast<uint32_t>(value(i, 8 * c + kOrder[place])) << 4 * place;
        words[i * (rows / 8) + c] = static_cast<int32_t>(word);
      }
    }
    return words;
  };
  model.add(layer + ".qweight", DType::kI32, {k, rows / 8}, pack(k, [&](int64_t i, int64_t r) { return whole.at(r, i); }));
  model.add(layer + ".qzeros", DType::kI32, {groups, rows / 8},
            pack(groups, [&](int64_t g, int64_t r) { return whole.zeros[r * groups + g]; }));
  model.add(layer + ".scales", DType::kF16, {groups, rows}, halves(transposed(whole.scales, rows)));
  model.expect(layer, whole, 4, group_of);
}

// DeepSeek-V3's: e4m3 with a scale for each block of rows and columns.
void write_fp8(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows) {
  const int64_t k = std::ssize(w) / rows, across = (k + kBlock - 1) / kBlock, down = (rows + kBlock - 1) / kBlock;
  std::vector<float> scales(down * across, 1e-6f), rounded(w.size());
  std::vector<Float8E4M3> codes(w.size());
  const auto scale_of = [&](int64_t i) -> float& { return scales[i / k / kBlock * across + i % k / kBlock]; };
  for (int64_t i = 0; i < rows * k; ++i) scale_of(i) = std::max(scale_of(i), std::abs(w[i]) / 448.0f);
  for (int64_t i = 0; i < rows * k; ++i) {
    codes[i] = to_float8_e4m3(w[i] / scale_of(i));
    rounded[i] = to_float(codes[i]) * scale_of(i);
  }
  model.add(layer + ".weight", DType::kF8E4M3, {rows, k}, codes);
  model.add(layer + ".weight_scale_inv", DType::kF32, {down, across}, scales);
  model.expect(layer, rows, rounded);
}

struct Form {
  std::string name;
  InputRounding rounding;
  void (*write)(WrittenModel& model, const std::string& layer, const std::vector<float>& w, int64_t rows);
  std::string quantization_config;
  bool routers = false;  // are quantised too, as GPTQModel's AWQ does
};

std::vector<Form> forms() {
  const std::string awq = R"({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": true, "version": "gemm"})";
  const std::string compressed = R"({"quant_method": "compressed-tensors", "quantization_status": "compressed",
    "ignore": ["lm_head", "re:.*mlp.gate$"], "format": )";
  return {
      {"compressed-tensors W8A8", InputRounding::kRow, write_int8,
       compressed + R"("int-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
         "weights": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "channel"},
         "input_activations": {"num_bits": 8, "type": "int", "symmetric": true, "strategy": "token", "dynamic": true}}}})"},
      {"compressed-tensors W4A16", InputRounding::kTwice, write_packed_int4,
       compressed + R"("pack-quantized", "config_groups": {"group_0": {"targets": ["Linear"],
         "weights": {"num_bits": 4, "type": "int", "symmetric": true, "strategy": "group", "group_size": 32}}}})"},
      {"GPTQ", InputRounding::kTwice, write_gptq,
       R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true, "sym": false, "lm_head": false,
         "checkpoint_format": "gptq"})"},
      {"AWQ", InputRounding::kTwice, write_awq, awq},
      {"AWQ with routers", InputRounding::kTwice, write_awq, awq, true},
      {"FP8 in blocks", InputRounding::kNone, write_fp8,
       R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [32, 32]})"},
  };
}

// A mixture's own numbers: the experts a token meets, of how many.
struct Mixture {
  const char* name;
  int64_t met, experts;
};
constexpr Mixture kMixtures[] = {{"tiny-qwen3moe", 2, 8}, {"tiny-deepseek-v2", 2, 16}};

// Linear layers but the router, whose name is no projection's.
bool is_projection(const std::string& name) { return name.find("_proj") != name.npos && name.ends_with(".weight"); }
bool is_router(const std::string& name) { return name.ends_with("mlp.gate.weight"); }
// Which is multiplied as floats, whatever it is stored in (layers/latent_projection.h).
bool is_absorbed(const std::string& name) { return name.find("kv_b_proj") != name.npos; }

class QuantisedMixture : public ::testing::TestWithParam<std::tuple<Mixture, Form>> {
 protected:
  QuantisedMixture() : written_(form().rounding), files_(mixture().name) {
    const fs::path model = tiny_options(mixture().name).model;
    const auto source = *io::Checkpoint::open(model);
    for (const auto& name : source->names()) {
      const auto view = source->find(name)->view;
      if (!is_projection(name) && !(form().routers && is_router(name))) {
        written_.keep(name, view);
        continue;
      }
      const auto layer = name.substr(0, name.rfind('.'));
      form().write(written_, layer, floats_of(view), view.rows());
      written_.add_wide(layer);
      const bool expert = layer.find(".experts.") != layer.npos;
      if (!is_absorbed(name) && !is_router(name)) (expert ? expert_outputs_ : other_outputs_) += view.rows();
    }
    source_ = source;
    written_.write(model, form().quantization_config);
    adapters_ = {{"a", files_.write("a", 8, 1)}, {"b", files_.write("b", 24, 2)}};
  }
  static const Mixture& mixture() { return std::get<0>(GetParam()); }
  static const Form& form() { return std::get<1>(GetParam()); }
  EngineOptions options() const {
    auto options = written_.options();
    options.adapters = adapters_;
    return options;
  }

  WrittenModel written_;
  engine::AdapterFiles files_;
  std::shared_ptr<const io::Checkpoint> source_;  // tensors that are kept lie in it
  std::vector<AdapterSpec> adapters_;
  int64_t expert_outputs_ = 0, other_outputs_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Forms, QuantisedMixture,
                         ::testing::Combine(::testing::ValuesIn(kMixtures), ::testing::ValuesIn(forms())),
                         [](const auto& tested) {
                           auto name = std::string(std::get<0>(tested.param).name) + "_" + std::get<1>(tested.param).name;
                           std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
                           return name;
                         });

Request prompt(std::vector<AdapterUse> adapters = {}, int length = 40) {
  auto request = engine::with_adapters(engine::greedy_request(engine::random_prompt(length, 7), 8), std::move(adapters));
  request.sampling.prompt_logprobs = 1;
  return request;
}

TEST_P(QuantisedMixture, EveryLayerGivesTheFormulaOfItsFileWithAnAdapterAndWithout) {
  written_.formula().read_adapter(fs::path(adapters_[0].path), 2);  // alpha / r of synthetic adapters
  const auto llm = load_or_die(held_to(written_.formula(), options()));
  ASSERT_NE(llm, nullptr);
  for (const bool with_adapter : {false, true}) {
    const int64_t before = written_.formula().outputs();
    written_.formula().set_adapter(with_adapter);
    const auto answer =
        llm->generate({prompt(with_adapter ? std::vector<AdapterUse>{{"a"}} : std::vector<AdapterUse>{})}).front();
    ASSERT_TRUE(answer.status.ok()) << answer.status.to_string();
    EXPECT_EQ(written_.formula().outputs() - before,
              (40 + 7) * (other_outputs_ + expert_outputs_ * mixture().met / mixture().experts));
    EXPECT_LE(written_.formula().farthest(), 1) << written_.formula().farthest_place();
  }
}

TEST_P(QuantisedMixture, EachRowOfAMixIsItsAnswerAlone) {
  const auto llm = load_or_die(options());
  ASSERT_NE(llm, nullptr);
  const std::vector<Request> mix{prompt(), prompt({{"a"}}, 21), prompt({{"b"}}), prompt({{"a", 0.5F}, {"b", 0.5F}}),
                                 prompt({}, 3)};
  const auto together = llm->generate(mix);
  for (size_t i = 0; i < mix.size(); ++i) engine::expect_same_bits(llm->generate({mix[i]}).front(), together[i]);
}

// What is rounded besides the weights, by far less than they are, changes a log-probability as little.
TEST_P(QuantisedMixture, AnswersAsTheSameNumbersInFloat32) {
  const auto exact = load_or_die(tiny_options(mixture().name)), wide = load_or_die(written_.wide_options());
  const auto llm = load_or_die(written_.options());
  ASSERT_TRUE(exact != nullptr && wide != nullptr && llm != nullptr);
  const auto distance = [](LLM& a, LLM& b) {
    const auto x = a.generate({prompt()}).front().prompt_logprobs, y = b.generate({prompt()}).front().prompt_logprobs;
    std::vector<double> off;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) off.push_back(std::abs(x[i].chosen.logprob - y[i].chosen.logprob));
    EXPECT_GE(off.size(), 39u);
    std::sort(off.begin(), off.end());
    return off.empty() ? 0 : off[off.size() / 2];
  };
  const double rounding = distance(*exact, *wide), off = distance(*llm, *wide);
  EXPECT_GT(rounding, 0) << "nothing was quantised";
  EXPECT_LT(off, form().rounding == InputRounding::kRow ? 0.2 : rounding / 20)
      << "the weights' rounding moves it by " << rounding;
}

}  // namespace
}  // namespace choral::tools
