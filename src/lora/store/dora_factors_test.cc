#include "lora/store/dora_factors.h"

#include <random>

#include "lora/peft/loading_test.h"
#include "lora/store/adapter_check.h"
#include "lora/store/packed_adapter.h"
#include "platform/cpu_context_test.h"

namespace choral::lora {
namespace {

constexpr int64_t kMagnitudeSeed = 20;

float weight(int64_t row, int64_t k) { return 0.2F * static_cast<float>((row * 13 + k * 7) % 17) - 1.5F; }

// Some values of mixed signs, the same for the same seed.
std::vector<float> values(int64_t count, uint32_t seed, float bound) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-bound, bound);
  std::vector<float> out(count);
  for (float& value : out) value = draw(random);
  return out;
}

Tensor tensor(const std::vector<float>& from, std::initializer_list<int64_t> shape) {
  auto made = Tensor::allocate(DType::kF32, Shape{shape});
  CHORAL_CHECK(made.ok(), made.status().message());
  std::copy(from.begin(), from.end(), made->as<float>().begin());
  return std::move(*made);
}

struct Module {
  int64_t in, out, rank;
  std::vector<float> a = values(rank * in, 1, 0.5F), b = values(out * rank, 2, 0.5F), m = values(out, kMagnitudeSeed, 3.0F);
  float scaling = 1.5F;

  LoRALayerWeights layer() const {
    LoRALayerWeights layer;
    layer.module_name = "model.layers.0.mlp.up_proj";
    layer.rank = rank;
    layer.scaling = scaling;
    layer.lora_a = AdapterTensor(tensor(a, {rank, in}));
    layer.lora_b = AdapterTensor(tensor(b, {out, rank}));
    layer.magnitude = AdapterTensor(tensor(m, {out}));
    return layer;
  }
  struct Wanted {
    double factor, bound;
  };
  // Each element of W + s·B·A is a sum of rank + 1 terms, each product and sum rounded by half an ulp of at most the terms' sizes
  // together (as is s·B); length and quotient are rounded once.
  Wanted wanted(int64_t row, int64_t first_row) const {
    double squares = 0, sizes = 0;
    for (int64_t k = 0; k < in; ++k) {
      double sum = weight(first_row + row, k), size = std::abs(sum);
      for (int64_t r = 0; r < rank; ++r) {
        const double term = double{scaling} * at(b, row * rank + r) * at(a, r * in + k);
        sum += term;
        size += std::abs(term);
      }
      squares += sum * sum;
      sizes += size * size;
    }
    const double factor = at(m, row) / std::sqrt(squares), rounding = 0x1p-24 * static_cast<double>(rank + 3);
    return {factor, std::abs(factor) * (rounding * std::sqrt(sizes / squares) + 0x1p-23)};
  }
  static double at(const std::vector<float>& from, int64_t i) { return from[i]; }
};

LoRATarget target_of(std::function<Status(int64_t, std::span<float>)> base_row) {
  LoRATarget target;
  target.base_row = std::move(base_row);
  return target;
}

Status base_row(int64_t row, std::span<float> out) {
  for (size_t k = 0; k < out.size(); ++k) out[k] = weight(row, static_cast<int64_t>(k));
  return {};
}

// Each element of W + s·B·A is rounded rank + 2 times, half an ulp each, around terms that may be larger than their sum; the
// length and the quotient once more.
TEST(DoraFactors, AreTheMagnitudesOverTheLengths) {
  for (const CpuLevel level : usable_cpu_levels()) {
    for (const auto& [in, out, rank] : {std::array<int64_t, 3>{1, 1, 1}, {7, 3, 2}, {16, 8, 4}, {33, 70, 5}, {256, 150, 31}}) {
      const Module module{in, out, rank};
      ThreadPool pool(2);
      const auto factors = dora_factors(pool, level, target_of(base_row), 5, module.layer());
      ASSERT_TRUE(factors.ok()) << factors.status().message();
      for (int64_t j = 0; j < out; ++j) {
        const auto wanted = module.wanted(j, 5);
        EXPECT_NEAR((*factors)[j], wanted.factor, wanted.bound)
            << cpu_level_name(level) << " row " << j << " of " << out << "x" << in;
      }
      ThreadPool alone(1);
      EXPECT_EQ(*dora_factors(alone, level, target_of(base_row), 5, module.layer()), *factors) << "threads show";
    }
  }
}

TEST(DoraFactors, ARowWithoutLengthIsNamed) {
  Module module{16, 20, 2};
  const auto refused = [&](float value, int64_t bad) {
    ThreadPool pool(2);
    std::fill_n(module.b.begin() + bad * module.rank, module.rank, 0.0F);
    const auto target = target_of([&](int64_t row, std::span<float> out) {
      if (row == 100 + bad) {
        std::fill(out.begin(), out.end(), value);
        return Status();
      }
      return base_row(row, out);
    });
    return dora_factors(pool, cpu_level(), target, 100, module.layer()).status();
  };
  EXPECT_EQ(refused(0.0F, 11).code(), Code::kInvalidArgument);
  EXPECT_THAT(refused(0.0F, 11).message(),
              AllOf(HasSubstr("'model.layers.0.mlp.up_proj': row 11 "), HasSubstr("is all zero"), HasSubstr("1 of 20 rows")));
  EXPECT_THAT(refused(-0.0F, 0).message(), HasSubstr("row 0 of W + s·B·A is all zero"));
  EXPECT_THAT(refused(std::numeric_limits<float>::infinity(), 19).message(),
              AllOf(HasSubstr("row 19 "), HasSubstr("has a NaN or an infinity")));
  EXPECT_THAT(refused(1e-40F, 3).message(), HasSubstr("row 3 of W + s·B·A is too short for its magnitude"));
  EXPECT_TRUE(refused(1e-30F, 4).ok());
  module.m[11] = 0;  // 0 / 0 is no number either
  EXPECT_THAT(refused(0.0F, 11).message(), HasSubstr("row 11 "));
}

TEST(DoraFactors, ARowThatCannotBeReadIsAnError) {
  const Module module{16, 20, 2};
  ThreadPool pool(2);
  const auto target = target_of(
      [](int64_t row, std::span<float> out) { return row == 17 ? unavailable("the device is gone") : base_row(row, out); });
  const Status read = dora_factors(pool, cpu_level(), target, 0, module.layer()).status();
  EXPECT_EQ(read.code(), Code::kUnavailable);
  EXPECT_THAT(read.to_string(), AllOf(HasSubstr("up_proj"), HasSubstr("the device is gone")));
}

// q_proj and v_proj of a stacked layer with a zero row in v_proj: the check and the load say so alike.
TEST(DoraFactors, CheckAndLoadRefuseAZeroRow) {
  AdapterBuilder builder;
  builder.query_and_value();
  for (int64_t i = 0; i < testing::kLayers; ++i) {
    builder.add(fmt::format("model.layers.{}.self_attn.q_proj.lora_magnitude_vector", i), {kHidden})
        .add(fmt::format("model.layers.{}.self_attn.v_proj.lora_magnitude_vector", i), {kKeys});
  }
  constexpr int64_t kZero = 2;  // of v_proj
  std::fill_n(builder.at("model.layers.1.self_attn.v_proj.lora_B.weight").values.begin() + kZero * 2, 2, 0.0F);
  const std::string config = config_json(R"(,"use_dora":true)");
  const TempDir folder;
  folder.write("adapter_config.json", config);
  folder.write("adapter_model.safetensors", builder.safetensors());

  auto targets = testing::small_targets();
  for (const bool zero : {false, true}) {
    for (auto& target : targets) {
      target.base_row = [zero, last = target.name.starts_with("model.layers.1.")](int64_t row, std::span<float> out) {
        if (!(zero && last && row == kHidden + kKeys + kZero)) return base_row(row, out);
        std::fill(out.begin(), out.end(), 0.0F);
        return Status();
      };
    }
    const AdapterReport report = check_adapter(folder.path(), {.targets = targets});
    platform::testing::CpuContext cpu;
    const Status packed = PackedAdapter::pack(*cpu, accepted(builder, config), targets, {}).status();
    if (!zero) {
      EXPECT_TRUE(report.usable()) << ::testing::PrintToString(report.problems);
      EXPECT_TRUE(packed.ok()) << packed.message();
      continue;
    }
    EXPECT_EQ(report.code, Code::kInvalidArgument);
    EXPECT_THAT(report.problems, ElementsAre(HasSubstr("'model.layers.1.self_attn.v_proj': row 2 ")));
    EXPECT_EQ(packed.code(), Code::kInvalidArgument);
    EXPECT_THAT(packed.message(), HasSubstr("'model.layers.1.self_attn.v_proj': row 2 "));
  }
}

}  // namespace
}  // namespace choral::lora
