// Quantised weights in a device's own layout: handed over with all that they have, multiplied as the CPU does or left to it, and
// nobody is left in doubt which.
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/float16.h"
#include "kernels/quant/quantise_blocks.h"
#include "platform/host_view.h"
#include "platform/platform_choice.h"
#include "platform/plugin/plugin_session.h"
#include "plugins/plugin_adapters.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

using kernels::Activations;
using kernels::PackSpec;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kStays = "int8 weights stay with the CPU: ";

// W8A8 of two parts, the second one in an order of its own.
class Int8Weight {
 public:
  Int8Weight(int64_t rows, int64_t cols) : rows_(rows), cols_(cols) {
    for (int64_t i = 0; i < rows * cols; ++i) q_.push_back(static_cast<int8_t>(i * 37 % 256 - 128));
    for (int64_t i = 0; i < 2 * rows; ++i) scales_.push_back(0.001F * static_cast<float>(i % 5 + 1));
    for (int64_t i = rows; i-- > 1;) order_.push_back(static_cast<int32_t>(i));
    const TensorView stored{std::as_bytes(std::span(q_)).data(), DType::kI8, {rows, cols}, kCpuDevice};
    parts_ = {{stored, {}}, {stored, order_}};
  }
  Int8Weight(const Int8Weight&) = delete;
  Int8Weight& operator=(const Int8Weight&) = delete;

  PackSpec spec(std::optional<kernels::StaticQuant> input = {}) const {
    return {.rows = parts_, .format = DType::kI8, .activations = Activations::kInt8Rows, .scales = scales_, .fixed_input = input};
  }
  int64_t cols() const { return cols_; }

 private:
  int64_t rows_, cols_;
  std::vector<int8_t> q_;
  std::vector<float> scales_;
  std::vector<int32_t> order_;
  std::vector<kernels::WeightRows> parts_;
};

class QuantizedWeightsTest : public PluginTest {
 protected:
  static EngineOptions rounded(const std::string& device, const std::string& scheme = "w8a8_dynamic") {
    auto wish = options(device);
    wish.quantization = scheme;
    return wish;
  }
  // The first tokens of many prompts. An x that lies between two integers goes to the other one when the last bits of another
  // operator differ, and moves its answer a little; most prompts have none. A device that rounded otherwise would move all.
  static void expect_the_cpus(const EngineOptions& wish, const std::vector<std::vector<AdapterUse>>& voices = {{}}) {
    EngineOptions on_cpu = wish;
    on_cpu.device = "cpu";
    const auto device = load(wish), cpu = load(on_cpu);
    for (const auto& voice : voices) {
      std::vector<Request> requests;
      for (int length = 2; length < 42; length += 2) {
        requests.push_back(engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), 1));
        requests.back().adapters = voice;
      }
      const auto got = device->generate(requests), wanted = cpu->generate(requests);
      size_t equal = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_TRUE(got[i].status.ok()) << got[i].status.to_string();
        const float off = std::abs(got[i].completions.at(0).logprobs.at(0).chosen.logprob -
                                   wanted[i].completions.at(0).logprobs.at(0).chosen.logprob);
        EXPECT_LT(off, 0.3) << "request " << i;
        if (off < 1e-3) ++equal;
      }
      EXPECT_GT(equal, got.size() / 2);
    }
  }
};

// One session, without a model.
class SessionOfWeightsTest : public PluginTest {
 protected:
  void open(const std::string& device) {
    auto choice = platform::choose_platform(device);
    ASSERT_TRUE(choice.ok()) << choice.status().to_string();
    platform_ = choice->platform;
    auto session = platform_->open(pool_, {});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    session_ = std::move(*session);
    ctx_.emplace(*session_, pool_, cpu_level());
    session_->take_notes();
  }
  platform::PluginSession& session() { return static_cast<platform::PluginSession&>(*session_); }
  ThreadPool& pool() { return pool_; }
  // Of a device that fails at a marked call: calls count from where the fused operators are asked for.
  void fail_next_call() {
    const Variable none("CHORAL_REF_FUSED", "/none");
    EXPECT_FALSE(session().enable_custom_op(*ctx_));
  }
  std::unique_ptr<kernels::PackedMatrix> prepack(const PackSpec& spec) {
    auto packed = session_->prepack(*ctx_, spec);
    CHORAL_CHECK(packed.ok(), packed.status().message());
    return std::move(*packed);
  }
  static std::vector<float> input(int64_t rows, int64_t cols) {
    std::vector<float> x;
    for (int64_t i = 0; i < rows * cols; ++i) x.push_back(std::sin(static_cast<float>(i * i % 1009)));
    return x;
  }
  std::vector<float> on_device(const kernels::PackedMatrix& w, const std::vector<float>& x) {
    const platform::StepMark mark(*ctx_);
    const auto rows = std::ssize(x) / w.k();
    const auto in = ctx_->make_matrix(rows, w.k()), out = ctx_->make_matrix(rows, w.n());
    platform::copy_to_device(*ctx_, {x.data(), rows, w.k()}, in);
    session_->ops().matmul.run(*ctx_, w, in, {}, out);
    const auto y = platform::host_copy(*ctx_, out);
    return {y.data, y.data + rows * w.n()};
  }
  std::vector<float> on_cpu(const PackSpec& spec, const std::vector<float>& x) {
    const auto w = *kernels::pack_weight(spec, pool_);
    const auto rows = std::ssize(x) / w->k();
    std::vector<float> y(rows * w->n());
    w->multiply(ctx_->kernel, {x.data(), rows, w->k()}, {}, {y.data(), rows, w->n()});
    return y;
  }
  static void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof a[i]), 0) << a[i] << ", " << b[i] << " at " << i;
  }

  static inline const std::vector<std::optional<kernels::StaticQuant>> kInputs{
      std::nullopt, kernels::StaticQuant{.scale = 0.006F, .offset = 0}, kernels::StaticQuant{.scale = 0.009F, .offset = -17}};

 private:
  ThreadPool pool_{2};
  std::shared_ptr<const platform::Platform> platform_;
  std::unique_ptr<platform::Session> session_;
  std::optional<platform::Context> ctx_;
};

TEST_F(SessionOfWeightsTest, TheProductHasTheCpusBits) {
  open("ref_device");
  for (const int64_t cols : {32, 160, 1000}) {
    const Int8Weight weight(23, cols);
    for (const auto& fixed : kInputs) {
      const PackSpec spec = weight.spec(fixed);
      const auto packed = prepack(spec);
      ASSERT_TRUE(packed->on_device());
      auto x = input(7, cols);
      std::fill(x.begin() + cols, x.begin() + 2 * cols, 0.0F);
      expect_same_bits(on_device(*packed, x), on_cpu(spec, x));
    }
  }
  EXPECT_THAT(session().take_notes(), ::testing::IsEmpty());
}

// After the device's matmul failed the product is one of the same integers.
TEST_F(SessionOfWeightsTest, AProductThatMovesToTheHostKeepsItsBits) {
  const Variable at("CHORAL_REF_FAULT_AT", "1");
  const Int8Weight weight(23, 160);
  const auto x = input(7, 160);
  for (const auto& fixed : kInputs) {
    open("ref_fault_fails_at_100");
    const PackSpec spec = weight.spec(fixed);
    const auto packed = prepack(spec);
    ASSERT_TRUE(packed->on_device());
    fail_next_call();
    expect_same_bits(on_device(*packed, x), on_cpu(spec, x));
    EXPECT_THAT(session().take_notes(), Contains(HasSubstr("matmul is served by the CPU: it failed")));
  }
}

TEST_F(SessionOfWeightsTest, AFormThatDisagreesStaysWithTheCpuAlone) {
  const Int8Weight weight(23, 160);
  const auto x = input(7, 160);
  const Variable ignored("CHORAL_REF_IGNORE", "input_offset");
  open("ref_fault_features");
  EXPECT_TRUE(prepack(weight.spec())->on_device());
  EXPECT_THAT(session().take_notes(), ::testing::IsEmpty());
  for (int again = 0; again < 2; ++again) {
    const PackSpec spec = weight.spec(kInputs.back());
    const auto packed = prepack(spec);
    EXPECT_FALSE(packed->on_device());
    expect_same_bits(on_device(*packed, x), on_cpu(spec, x));
  }
  EXPECT_THAT(session().take_notes(),
              ElementsAre(AllOf(
                  HasSubstr(kStays + "it disagrees with the reference with int8 weights, int8 rows of x with a fixed scale: "),
                  HasSubstr("of its test vector"))));
}

// Whatever a weight has beyond int8 rows, a device that passes it over is found out by a vector of the same form.
TEST_F(SessionOfWeightsTest, EachFormHasItsVector) {
  constexpr int64_t kRows = 6, kCols = 256;
  const std::vector<int8_t> q(kRows * kCols, 3);
  const std::vector<float> scales(kRows * kCols / 32, 0.5F);
  const std::vector<int16_t> zeros(scales.size(), 1);
  std::vector<int32_t> order(kCols);
  std::iota(order.rbegin(), order.rend(), 0);
  const auto stored = [&](DType type) {
    return kernels::WeightRows{{std::as_bytes(std::span(q)).data(), type, {kRows, kCols}, kCpuDevice}, {}};
  };
  const kernels::WeightRows integers = stored(DType::kI8), floats = stored(DType::kF8E4M3);
  const auto form = [&](Activations activations, int bits, int64_t group, bool with_zeros = false) {
    const size_t count = group == 0 ? kRows : kRows * kCols / group;
    return PackSpec{.rows = {&integers, 1},
                    .format = DType::kI8,
                    .activations = activations,
                    .bits = bits,
                    .group_size = group,
                    .scales = std::span(scales).first(count),
                    .zeros = std::span(zeros).first(with_zeros ? count : 0)};
  };
  std::vector<std::pair<PackSpec, std::string>> forms{
      {form(Activations::kFull, 8, 0), "int8 weights, x in full"},
      {form(Activations::kFull, 4, 128), "int4 weights in groups of 128, x in full"},
      {form(Activations::kFull, 4, 32, true), "int4 weights in groups of 32, zero points, x in full"},
      {form(Activations::kInt8Blocks, 8, 64), "int8 weights in groups of 64, int8 blocks of x"},
      {form(Activations::kInt8Rows, 8, 128), "int8 weights in groups of 128, int8 rows of x"},
      {form(Activations::kInt8Rows, 4, 32), "int4 weights in groups of 32, int8 rows of x"},
      {form(Activations::kInt8Rows, 8, 0), "int8 weights, an order of k, int8 rows of x"},
      {form(Activations::kFull, 4, 32), "e2m1 weights in groups of 32, x in full"},
      {form(Activations::kFull, 8, 0), "float8_e4m3 weights, x in full"},
      {form(Activations::kFull, 8, 128), "float8_e4m3 weights in groups of 128, x in full"}};
  forms[6].first.k_order = order;
  forms[7].first.codebook = kernels::Codebook::kE2M1;
  for (const size_t i : {8, 9}) {
    forms[i].first.rows = {&floats, 1};
    forms[i].first.format = DType::kF8E4M3;
  }
  const Variable ignored("CHORAL_REF_IGNORE", "forms");
  open("ref_fault_features");
  for (const auto& [spec, name] : forms) {
    SCOPED_TRACE(name);
    const auto packed = prepack(spec);
    EXPECT_THAT(session().take_notes(), ElementsAre(HasSubstr("it disagrees with the reference with " + name + ": ")));
    const auto x = input(3, kCols);
    expect_same_bits(on_device(*packed, x), on_cpu(spec, x));
  }
}

// What a file stores is tried as well, not only what it is quantised to: a device that takes one type for another is found out.
TEST_F(SessionOfWeightsTest, StoredTypesHaveTheirVectors) {
  constexpr int64_t kRows = 6, kCols = 256;
  std::vector<float> values = input(kRows, kCols);
  std::vector<std::byte> halves(kRows * kCols * sizeof(Float16)), blocks(row_bytes(DType::kQ8_0, kRows * kCols));
  for (size_t i = 0; i < values.size(); ++i) {
    const Float16 half = to_float16(values[i]);
    std::memcpy(halves.data() + i * sizeof half, &half, sizeof half);
  }
  kernels::quantise_row(DType::kQ8_0, values.data(), kRows * kCols, blocks.data());
  struct Stored {
    const char* feature;
    DType type;
    const std::byte* data;
    const char* name;
  };
  for (const auto& [feature, type, data, name] : {Stored{"f16", DType::kF16, halves.data(), "float16 weights, x in full"},
                                                  Stored{"q8_0", DType::kQ8_0, blocks.data(), "q8_0 weights, x in full"}}) {
    SCOPED_TRACE(name);
    const kernels::WeightRows rows{{data, type, {kRows, kCols}, kCpuDevice}, {}};
    const PackSpec spec{.rows = {&rows, 1}, .format = type, .activations = Activations::kFull};
    open("ref_fault_features");
    EXPECT_TRUE(prepack(spec)->on_device());
    EXPECT_THAT(session().take_notes(), ::testing::IsEmpty());
    const Variable ignored("CHORAL_REF_IGNORE", feature);
    open("ref_fault_features");
    const auto packed = prepack(spec);
    EXPECT_FALSE(packed->on_device());
    EXPECT_THAT(session().take_notes(),
                ElementsAre(HasSubstr("it disagrees with the reference with " + std::string(name) + ": ")));
    const auto x = input(3, kCols);
    expect_same_bits(on_device(*packed, x), on_cpu(spec, x));
  }
}

// A row that a device gives back says which integers it is made of, in every form.
TEST_F(SessionOfWeightsTest, IntegersComeBackFromTheirRows) {
  constexpr int64_t kRows = 5, kCols = 160;
  std::vector<float> scales;
  std::vector<int16_t> zeros;
  for (int64_t i = 0; i < kRows * kCols / 32; ++i) {
    scales.push_back(i == 3 ? -0.07F : 0.013F * static_cast<float>(i + 1));
    zeros.push_back(static_cast<int16_t>(i % 5 - 2));
  }
  std::vector<int32_t> order(kCols);
  std::iota(order.rbegin(), order.rend(), 0);
  struct Form {
    int bits;
    int64_t group;
    bool zeros, order;
    kernels::Codebook codebook = kernels::Codebook::kLinear;
  };
  for (const Form& form : {Form{8, 0, false, false}, Form{8, 32, true, false}, Form{4, 32, false, false}, Form{4, 64, true, true},
                           Form{4, 32, false, true, kernels::Codebook::kE2M1}}) {
    const int range = 1 << form.bits, least = form.codebook == kernels::Codebook::kE2M1 ? 0 : -range / 2;
    std::vector<int8_t> q;
    for (int64_t i = 0; i < kRows * kCols; ++i) q.push_back(static_cast<int8_t>(i * 37 % range + least));
    std::replace(q.begin(), q.end(), int8_t{8}, form.codebook == kernels::Codebook::kE2M1 ? int8_t{0} : int8_t{8});  // -0 is 0
    const kernels::WeightRows rows{{std::as_bytes(std::span(q)).data(), DType::kI8, {kRows, kCols}, kCpuDevice}, {}};
    const size_t count = form.group == 0 ? kRows : kRows * ((kCols + form.group - 1) / form.group);
    const PackSpec spec{.rows = {&rows, 1},
                        .format = DType::kI8,
                        .bits = form.bits,
                        .codebook = form.codebook,
                        .group_size = form.group,
                        .scales = std::span(scales).first(count),
                        .zeros = std::span(zeros).first(form.zeros ? count : 0),
                        .k_order = std::span(order).first(form.order ? kCols : 0)};
    const auto w = kernels::pack_weight(spec, pool());
    ASSERT_TRUE(w.ok()) << w.status().to_string();
    const auto kept = *platform::WeightScales::of(spec);
    std::vector<float> row(kCols);
    std::vector<int8_t> back(kRows * kCols);
    for (int64_t i = 0; i < kRows; ++i) {
      ASSERT_TRUE((*w)->read_row(i, row).ok());
      ASSERT_TRUE(kept.restore(i, row, std::span(back).subspan(i * kCols, kCols)).ok());
    }
    EXPECT_EQ(back, q) << platform::WeightForm::of(spec).describe();
    row[7] = NAN;
    EXPECT_THAT(kept.restore(1, row, back).message(), HasSubstr("row 1 of a weight comes back with"));
  }
}

// x in 16 bits is a wish. Whoever does not grant it multiplies in full, and the user hears of it.
class XIn16BitsTest : public SessionOfWeightsTest {
 protected:
  PackSpec spec(DType type, Activations activations = Activations::k16Bits) {
    rows_ = {{stored_.data(), type, {kRows, kCols}, kCpuDevice}, {}};
    return {.rows = {&rows_, 1}, .format = type, .activations = activations};
  }
  void expect_full(const std::string& why) {
    const auto packed = prepack(spec(DType::kBF16));
    EXPECT_TRUE(packed->on_device());
    EXPECT_THAT(session().take_notes(), ElementsAre(AllOf(HasSubstr("bfloat16 weights meet x in full: "), HasSubstr(why))));
    const auto x = input(3, kCols);
    expect_same_bits(on_device(*packed, x), on_device(*prepack(spec(DType::kBF16, Activations::kFull)), x));
  }

 private:
  static constexpr int64_t kRows = 6, kCols = 64;
  std::vector<std::byte> stored_ = std::vector<std::byte>(kRows * kCols * sizeof(float), std::byte{0x3C});  // of any float type
  kernels::WeightRows rows_{};
};

TEST_F(XIn16BitsTest, ADeviceThatRefusesIsAskedAgain) {
  open("ref_device");
  expect_full("x is multiplied as it is, and not rounded to 16 bits");
}

TEST_F(XIn16BitsTest, ADeviceThatDoesNotRoundIsFoundOut) {
  const Variable ignored("CHORAL_REF_IGNORE", "x_16");
  open("ref_fault_features");
  expect_full("it disagrees with the reference with bfloat16 weights, x in 16 bits: ");
}

TEST_F(XIn16BitsTest, IsNothingThatFloat32WeightsAreAskedFor) {
  open("ref_device");
  EXPECT_TRUE(prepack(spec(DType::kF32))->on_device());
  EXPECT_THAT(session().take_notes(), ::testing::IsEmpty());
}

TEST_F(QuantizedWeightsTest, XIn16BitsIsForDevicesThatHaveIt) {
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  for (const std::string device : {"cpu", "ref_device"}) {
    auto wish = options(device);
    wish.activations = "16bit";
    const auto llm = load(wish);
    EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr(device), HasSubstr("weights meet x in full"))));
    expect_equal(answers(*llm), cpu_answers());
    wish.strict = true;
    EXPECT_THAT(LLM::load(wish).status().message(), AllOf(HasSubstr("--strict: " + device), HasSubstr("meet x in full")));
  }
}

TEST_F(QuantizedWeightsTest, AModelOfInt8RowsIsTheDevices) {
  const auto llm = load(rounded("ref_device"));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("int8, 16x16 tiles")));
  EXPECT_THAT(llm->info().notes, Not(Contains(HasSubstr("stay with the CPU"))));
  expect_the_cpus(rounded("ref_device"));
}

TEST_F(QuantizedWeightsTest, AdaptersInAnyMixActOnIt) {
  const testing::TempDir folder;
  auto wish = rounded("ref_device");
  wish.adapters = {{"dora", write_dora(folder)}, {"norms", write_norms(folder, "norms", {"input_layernorm", "q_norm"})}};
  wish.enable_prefix_caching = false;
  const std::vector<std::vector<AdapterUse>> voices{{}, {{"dora"}}, {{"norms"}}, {{"dora", 0.5F}}};
  expect_the_cpus(wish, voices);

  std::vector<Request> requests;
  for (const auto& voice : voices) {
    const int length = 3 + 9 * static_cast<int>(requests.size());
    requests.push_back(engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), 6));
    requests.back().adapters = voice;
  }
  const auto llm = load(wish);
  const auto together = llm->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) engine::expect_same_bits(llm->generate({requests[i]}).front(), together[i]);
}

// What the device refuses the CPU multiplies, and says so.
struct Left {
  const char* device;
  const char* scheme;
  const char* why;
};
class LeftToTheCpuTest : public QuantizedWeightsTest, public ::testing::WithParamInterface<Left> {};

TEST_P(LeftToTheCpuTest, WithANote) {
  const auto [device, scheme, why] = GetParam();
  const auto llm = load(rounded(device, scheme));
  EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr(" weights stay with the CPU: "), HasSubstr(why))));
  EXPECT_THAT(llm->info().notes, Contains(HasSubstr("bf16, 16x16 tiles"))) << "the others are the device's";
  expect_the_cpus(rounded(device, scheme));
}
INSTANTIATE_TEST_SUITE_P(Schemes, LeftToTheCpuTest,
                         ::testing::Values(Left{"ref_device", "w4a16", "not integers of 4 bits"},
                                           Left{"ref_device", "w8a16", "not x that is not rounded to int8 rows"},
                                           Left{"ref_device", "fp8", "not other elements than i8"}),
                         [](const auto& tested) { return std::string(tested.param.device) + "_" + tested.param.scheme; });

TEST_F(QuantizedWeightsTest, StrictRefusesASchemeThatTheCpuWouldMultiply) {
  const Variable complete("CHORAL_REF_COMPLETE", "1");
  auto wish = rounded("ref_device");
  wish.strict = true;
  EXPECT_TRUE(LLM::load(wish).ok());
  wish.quantization = "w4a16";
  const Status refused = LLM::load(wish).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("--strict: ref_device: " + kStays), HasSubstr("not integers of 4 bits")));
}

TEST_F(QuantizedWeightsTest, ADeviceThatRoundsOtherwiseIsFoundOut) {
  const Variable ignored("CHORAL_REF_IGNORE", "int8_rounding");
  const auto llm = load(rounded("ref_fault_features"));
  EXPECT_THAT(llm->info().notes,
              Contains(HasSubstr(kStays + "it disagrees with the reference with int8 weights, int8 rows of x: ")));
  EXPECT_THAT(llm->info().notes, Not(Contains(HasSubstr("matmul is served by the CPU")))) << "floats are the device's";
  expect_the_cpus(rounded("ref_fault_features"));
}

TEST_F(QuantizedWeightsTest, ADeviceThatRefusesToRoundSaysSo) {
  const Variable refused("CHORAL_REF_REFUSE", "int8_rounding");
  const auto llm = load(rounded("ref_fault_features"));
  EXPECT_THAT(llm->info().notes, Contains(AllOf(HasSubstr(kStays), HasSubstr("prepack: int8_rounding is not served"))));
  expect_the_cpus(rounded("ref_fault_features"));
}

}  // namespace
}  // namespace choral::plugins
