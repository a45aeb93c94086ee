// What --lora-dtype int8 costs: trained adapters, as stored and in int8, on the same inputs. Prints the figures of
// docs/adapters.md and holds each output under what the format promises.
#include <cmath>
#include <cstdio>
#include <random>

#include "kernels/lora/lora_matrix.h"
#include "lora/peft/loading_test.h"
#include "lora/peft/module_names.h"

namespace choral::lora {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 4;

float largest(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

struct Floats {
  std::vector<float> values;
  int64_t cols;
  explicit Floats(const TensorView& view) : values(view.shape.elements()), cols(view.cols()) {
    const auto tensor = to_float_tensor(view);
    std::copy(tensor->as<float>().begin(), tensor->as<float>().end(), values.begin());
  }
  std::span<const float> row(int64_t i) const { return std::span(values).subspan(i * cols, cols); }
};

std::vector<float> product(const TensorView& a, const TensorView& b, kernels::LoRAFormat format, const std::vector<float>& x) {
  const int64_t in = a.cols(), rank = a.rows(), out = b.rows();
  const kernels::LoRASliceSource slice{.a = a, .b = b};
  const auto matrix = kernels::LoRAMatrix::pack({.in = in, .out = out, .slices = {&slice, 1}}, format);
  CHORAL_CHECK(matrix.ok(), matrix.status().message());
  std::vector<float> middle(kRows * rank), y(kRows * out);
  matrix->shrink(cpu_level(), {x.data(), kRows, in}, 1.0F, 0, rank, {middle.data(), kRows, rank});
  const kernels::LoRATerm term{&*matrix, middle.data()};
  kernels::lora_expand(cpu_level(), {&term, 1}, 0, {y.data(), kRows, out});
  return y;
}

struct Error {
  double squares = 0, of_squares = 0;  // of the differences, and of the outputs as stored
  double expected = 0;                 // what `squares` should be
  double share_of_bound = 0;           // the largest
};

// A row of A and a row of B each have one scale, the largest value / 127, so each value is off by at most largest / 254; in
// y = B·(A·x) the two add up. On top comes what both products round, in chains of `in` and of `rank` terms. As rounding is spread
// evenly over a step, its square is a twelfth of the step's on average, and squares add up over independent values.
void add_error(const TensorView& a_view, const TensorView& b_view, Error& error) {
  const Floats a(a_view), b(b_view);
  const int64_t in = a_view.cols(), rank = a_view.rows(), out = b_view.rows();
  std::mt19937 random(static_cast<uint32_t>(out * 1000 + rank));
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * in);
  for (float& value : x) value = normal(random);
  const auto stored = product(a_view, b_view, kernels::LoRAFormat::kAuto, x);
  const auto int8 = product(a_view, b_view, kernels::LoRAFormat::kI8, x);
  const double rounding = 0x1p-23 * static_cast<double>(in + rank);
  for (int64_t i = 0; i < kRows; ++i) {
    const auto row = std::span(x).subspan(i * in, in);
    double sum = 0, squares = 0;
    for (const float value : row) sum += std::abs(value), squares += static_cast<double>(value) * value;
    std::vector<double> middle(rank), off(middle.size()), sizes(middle.size());
    for (int64_t j = 0; j < rank; ++j) {
      const auto at = static_cast<size_t>(j);
      for (size_t k = 0; k < row.size(); ++k) {
        middle[at] += static_cast<double>(a.row(j)[k]) * row[k];
        sizes[at] += std::abs(static_cast<double>(a.row(j)[k]) * row[k]);
      }
      off[at] = largest(a.row(j)) / 254.0 * sum;
    }
    for (int64_t o = 0; o < out; ++o) {
      const double b_off = largest(b.row(o)) / 254.0;
      double bound = 0;
      for (size_t j = 0; j < middle.size(); ++j) {
        const double size = std::abs(b.row(o)[j]);
        const double a_step = off[j] / sum * 2, b_step = b_off * 2;
        error.expected += (size * size * a_step * a_step * squares + b_step * b_step * middle[j] * middle[j]) / 12;
        bound += size * off[j] + b_off * (std::abs(middle[j]) + off[j]) + rounding * (size + b_off) * (sizes[j] + off[j]);
      }
      const auto at = static_cast<size_t>(i * out + o);
      const double difference = static_cast<double>(int8[at]) - stored[at];
      error.squares += difference * difference;
      error.of_squares += static_cast<double>(stored[at]) * stored[at];
      error.share_of_bound = std::max(error.share_of_bound, bound > 0 ? std::abs(difference) / bound : std::abs(difference));
    }
  }
}

TEST(Int8Adapters, AreAsFarOffAsTheFormatSays) {
  const fs::path data = CHORAL_TEST_DATA;
  std::vector<fs::path> folders;
  for (const fs::path& root : {data / "../../examples/adapters", data / "lora"}) {
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_directory() && fs::exists(entry.path() / "adapter_model.safetensors")) folders.push_back(entry.path());
    }
  }
  std::sort(folders.begin(), folders.end());
  ASSERT_GE(folders.size(), 8u);
  for (const auto& folder : folders) {
    const auto file = read_adapter_file(folder);
    ASSERT_TRUE(file.ok()) << file.status().message();
    std::map<std::string, TensorView> a;
    for (const auto& [name, tensor] : file->tensors) {
      const auto parsed = parse_tensor_name(name);
      if (parsed && parsed->part == TensorPart::kLoraA) a[parsed->module] = tensor.view;
    }
    Error error;
    for (const auto& [name, tensor] : file->tensors) {
      const auto parsed = parse_tensor_name(name);
      if (parsed && parsed->part == TensorPart::kLoraB) add_error(a.at(parsed->module), tensor.view, error);
    }
    EXPECT_LE(error.share_of_bound, 1.0) << folder;
    EXPECT_NEAR(std::sqrt(error.squares / error.expected), 1, 0.2) << folder;
    std::printf("%-24s %3zu pairs: off by %.2f %% of B·A·x, at most %.0f %% of the bound\n", folder.filename().c_str(), a.size(),
                100 * std::sqrt(error.squares / error.of_squares), 100 * error.share_of_bound);
  }
}

}  // namespace
}  // namespace choral::lora
