// What a rank holds of a layer, in every scheme: the rows that the whole layer has there, bit for bit.
#include "quant/held_rows.h"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "base/checked_math.h"
#include "base/float16.h"
#include "platform/cpu_context_test.h"
#include "quant/scheme.h"
#include "quant/scheme_linear.h"

namespace choral::quant {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kIn = 256;

// Random tensors of all that a scheme registers for the whole layer.
class RandomTensors : public WeightSource {
 public:
  RandomTensors(LinearMethod& method, const LinearShape& whole, DType floats) : floats_(floats) {
    ParameterSet parameters;
    method.create_weights(whole, parameters);
    for (const Parameter& parameter : parameters.all()) {
      for (const Shard& shard : parameter.shards) {
        if (parameter.presence == Presence::kRequired || parameter.name == "weight_scale") make(parameter, shard);
      }
    }
  }

  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return not_found("no tensor {}", name);
    for (const Shape& shape : shapes) {
      if (found->second.shape() == shape) return io::SourceTensor{found->second.view(), orders_[name]};
    }
    return corrupt("{} is {}", name, found->second.shape().to_string());
  }
  void release(const std::string&) override {}
  const WeightRequest& request() const override { return request_; }

  // The file has the rows of this tensor the other way round.
  void turn_rows(const std::string& name) {
    auto& order = orders_[name];
    for (int64_t row = tensors_.at(name).shape()[0]; row-- > 0;) order.push_back(static_cast<int32_t>(row));
  }

 private:
  void make(const Parameter& parameter, const Shard& shard) {
    const DType type = type_of(parameter.stored_as);
    Tensor tensor = *Tensor::allocate(type, shard.shape);
    for (std::byte& byte : tensor.as<std::byte>()) byte = static_cast<std::byte>(next());
    if (type == DType::kF32) {
      for (float& value : tensor.as<float>()) value = 0.01F * static_cast<float>(next()) + 0.1F;
    } else if (type == DType::kBF16) {
      for (BFloat16& value : tensor.as<BFloat16>()) value = to_bfloat16(static_cast<float>(next()));
    } else if (type == DType::kF8E4M3 || parameter.name == "weight_scale") {   // the latter of e8m0
      for (std::byte& byte : tensor.as<std::byte>()) byte &= std::byte{0xBF};  // no NaN
    }
    tensors_.emplace(shard.name, std::move(tensor));
  }
  uint32_t next() { return (seed_ = seed_ * 1664525U + 1013904223U) >> 24; }
  DType type_of(StoredAs stored) const {
    switch (stored) {
      case StoredAs::kInt8: return DType::kI8;
      case StoredAs::kUint8: return DType::kU8;
      case StoredAs::kInt32:
      case StoredAs::kInteger: return DType::kI32;
      case StoredAs::kFloat8: return DType::kF8E4M3;
      case StoredAs::kFloat:
      case StoredAs::kFloatOrBlocks: return floats_;
      case StoredAs::kFloatOrInt64:
      case StoredAs::kFloatOrE8M0: return DType::kF32;
    }
    return DType::kF32;
  }

  DType floats_;
  WeightRequest request_;
  uint32_t seed_ = 7;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::vector<int32_t>> orders_;
};

struct Case {
  const char* name;
  SchemePtr scheme;
  int64_t unit = 1;  // rows that cannot be parted
  DType floats = DType::kF32;
};

std::vector<Case> cases() {
  const auto packed = [](int bits, int64_t group, bool symmetric) {
    return weight_only_scheme(packed_rows({.bits = bits, .group_size = group, .symmetric = symmetric}));
  };
  const auto slim = [](int bits, int64_t group, ModelSlimBytes bytes) {
    return dynamic_scheme(modelslim_rows({.bits = bits, .group_size = group}, bytes));
  };
  return {
      {"float32", float_scheme()},
      {"bfloat16", float_scheme(), 1, DType::kBF16},
      {"rounded to w8", dynamic_scheme(rounded_floats(8))},
      {"rounded to w4", weight_only_scheme(rounded_floats(4))},
      {"rounded to fp8", fp8_in_flight_scheme()},
      {"fp8, a scale for a row", fp8_scheme({.said = false})},
      {"fp8, blocks", fp8_scheme({.rows = 128, .cols = 128}), 128},
      {"int8 rows", static_scheme(int8_rows({}), /*symmetric_input=*/true)},
      {"int8 rows, zeros", weight_only_scheme(int8_rows({.symmetric = false}))},
      {"int8, one scale", dynamic_scheme(int8_rows({.one_scale = true}))},
      {"packed 4", packed(4, 128, true)},
      {"packed 4, zeros", packed(4, 128, false), 8},
      {"packed 3, zeros", packed(3, 0, false), 160},  // in dense words 32 share three, in whole ones 10 share one
      {"packed 8", packed(8, 0, true)},
      {"awq", weight_only_scheme(awq_columns({.bits = 4, .group_size = 128, .symmetric = false})), 8},
      {"gptq 4", weight_only_scheme(gptq_columns({.bits = 4, .group_size = 128, .symmetric = false}, GptqVersion::k1)), 8},
      {"gptq 3", weight_only_scheme(gptq_columns({.bits = 3, .group_size = 0, .symmetric = false}, GptqVersion::k2)), 32},
      {"mxfp4", weight_only_scheme(e2m1_rows())},
      {"modelslim 8", slim(8, 0, ModelSlimBytes::kOne)},
      {"modelslim 4 in pairs", slim(4, 128, ModelSlimBytes::kPair), 2},
  };
}

LinearShape whole_shape(bool bias) { return {.in = kIn, .out = {384, 128}, .shard_names = {"q", "k"}, .bias = bias}; }

// Rows [begin, end) of the whole.
LinearShape held_shape(const LinearShape& whole, int64_t begin, int64_t end) {
  LinearShape held{.in = whole.in, .out = {}, .shard_names = {}, .bias = whole.bias};
  hold_rows(whole, begin, end - begin, held);
  return held;
}

class HeldRows : public ::testing::Test {
 protected:
  std::unique_ptr<LinearMethod> method(const Case& c) { return make_scheme_linear_method({c.scheme, "a test"}); }

  // A layer of these rows, loaded and packed.
  std::unique_ptr<LinearMethod> load(const Case& c, const LinearShape& shape, WeightSource& source, int64_t* bytes = nullptr) {
    auto made = method(c);
    ParameterSet parameters;
    made->create_weights(shape, parameters);
    const Status loaded =
        shape.held.empty() ? parameters.weight_loader(source) : load_held_rows(*made, shape, source, parameters);
    EXPECT_TRUE(loaded.ok()) << loaded.to_string();
    if (bytes != nullptr) *bytes = made->expected_bytes(source.request(), shape, parameters);
    EXPECT_TRUE(cut_held_rows(*cpu_, parameters).ok());
    const Status packed = made->process_weights_after_loading(*cpu_, source.request(), shape, parameters);
    EXPECT_TRUE(packed.ok()) << packed.to_string();
    return made;
  }

  static void expect_rows(const LinearMethod& held, const LinearMethod& whole, int64_t begin, int64_t end) {
    std::vector<float> a(kIn), b(kIn);
    for (int64_t row = begin; row < end; ++row) {
      ASSERT_TRUE(held.read_row(row - begin, a).ok());
      ASSERT_TRUE(whole.read_row(row, b).ok());
      ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << "row " << row;
      if (!whole.bias().empty()) {
        EXPECT_EQ(held.bias()[row - begin], whole.bias()[row]);
      }
    }
  }

  platform::testing::CpuContext cpu_{2};
};

TEST_F(HeldRows, AreTheWholesInEveryScheme) {
  for (const Case& c : cases()) {
    for (const bool bias : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, bias {}", c.name, bias));
      const auto whole = whole_shape(bias);
      RandomTensors source(*method(c), whole, c.floats);
      int64_t all_bytes = 0;
      const auto all = load(c, whole, source, &all_bytes);
      if (::testing::Test::HasFailure()) return;
      int64_t sum = 0;
      const int64_t cuts[] = {0, round_up(100, c.unit), 384 + (c.unit >= 128 ? 0 : round_up(40, c.unit)), 512};
      for (size_t r = 0; r + 1 < std::size(cuts); ++r) {
        const auto shape = held_shape(whole, cuts[r], cuts[r + 1]);
        EXPECT_TRUE(may_hold(*method(c), shape));
        int64_t bytes = 0;
        expect_rows(*load(c, shape, source, &bytes), *all, cuts[r], cuts[r + 1]);
        sum += bytes;
      }
      EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(all_bytes), 0.02 * static_cast<double>(all_bytes)) << "expected";
    }
  }
}

// Rows in an order of the file's are taken where they lie.
TEST_F(HeldRows, AreThoseOfTheFilesOrder) {
  const Case c{"float32", float_scheme()};
  const auto whole = whole_shape(true);
  RandomTensors source(*method(c), whole, c.floats);
  source.turn_rows("q.weight");
  source.turn_rows("q.bias");
  const auto all = load(c, whole, source);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 16}, {16, 400}, {400, 512}}) {
    expect_rows(*load(c, held_shape(whole, begin, end), source), *all, begin, end);
  }
}

// Where rows share a word or a scale, they are not parted: it is known before, and an error.
TEST_F(HeldRows, DoNotPartWhatRowsShare) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto whole = whole_shape(false);
    for (const int64_t first : {int64_t{1}, int64_t{2}, int64_t{8}, int64_t{16}, int64_t{32}, int64_t{64}, int64_t{128}}) {
      EXPECT_EQ(may_hold(*method(c), held_shape(whole, first, 256)), first % c.unit == 0) << first;
    }
    if (c.unit == 1) continue;
    RandomTensors source(*method(c), whole, c.floats);
    const auto shape = held_shape(whole, 1, 256);
    ParameterSet parameters;
    const auto made = method(c);
    made->create_weights(shape, parameters);
    EXPECT_THAT(load_held_rows(*made, shape, source, parameters).message(), HasSubstr("cannot be divided"));
  }
}

// A block that has all rows serves any of them; of two blocks, each row must meet its own.
TEST_F(HeldRows, OfABlockThatHasMoreMeetItsScale) {
  const Case c{"fp8, blocks", fp8_scheme({.rows = 128, .cols = 128})};
  const LinearShape one{.in = kIn, .out = {128}, .shard_names = {"k"}}, two{.in = kIn, .out = {200}, .shard_names = {"k"}};
  RandomTensors source(*method(c), one, c.floats);
  EXPECT_TRUE(may_hold(*method(c), held_shape(one, 64, 128)));
  expect_rows(*load(c, held_shape(one, 64, 128), source), *load(c, one, source), 64, 128);
  EXPECT_FALSE(may_hold(*method(c), held_shape(two, 60, 200)));
  EXPECT_TRUE(may_hold(*method(c), held_shape(two, 0, 140)));
  EXPECT_TRUE(may_hold(*method(c), held_shape(two, 128, 200)));
}

}  // namespace
}  // namespace choral::quant
