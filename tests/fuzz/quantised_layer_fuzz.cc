// A quantised checkpoint of one layer: quantization_config as JSON up to the first zero byte, then a .safetensors file. What is
// accepted is loaded, packed, multiplied and read back; its answers are the same from one row or two.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "io/safetensors.h"
#include "kernels/context.h"
#include "platform/platform.h"
#include "quant/quant_config.h"

namespace {

using namespace choral;

constexpr int64_t kCols = 96, kRows = 20;

class Tensors : public quant::WeightSource {
 public:
  Tensors(std::span<const std::byte> file, const io::SafetensorsHeader& header) : file_(file), header_(header) {}

  bool contains(const std::string& name) const override { return header_.find(name) != nullptr; }
  Result<io::SourceTensor> take_any_of(const std::string& name, std::span<const Shape> shapes) override {
    const auto* entry = header_.find(name);
    if (entry == nullptr || entry->begin == entry->end || entry->rank > Shape::kMaxRank) return not_found("no tensor {}", name);
    if (std::find(shapes.begin(), shapes.end(), entry->shape) == shapes.end()) return corrupt("{} has another shape", name);
    return io::SourceTensor{{file_.data() + header_.data_offset + entry->begin, entry->dtype, entry->shape, {}}, {}};
  }
  void release(const std::string&) override {}
  const quant::WeightRequest& request() const override { return request_; }

 private:
  std::span<const std::byte> file_;
  const io::SafetensorsHeader& header_;
  quant::WeightRequest request_;
};

struct Machine {
  ThreadPool pool{1};
  std::unique_ptr<platform::Session> session = *platform::cpu_platform().open(pool, {});
  platform::Context ctx{*session, pool, cpu_level()};
};

Status load(const platform::Context& ctx, quant::LinearMethod& method, const quant::LinearShape& shape, Tensors& tensors) {
  quant::ParameterSet parameters;
  method.create_weights(shape, parameters);
  CHORAL_RETURN_IF_ERROR(parameters.weight_loader(tensors));
  return method.process_weights_after_loading(ctx, tensors.request(), shape, parameters);
}

void use(const platform::Context& ctx, const quant::LinearMethod& method) {
  std::vector<float> x(2 * kCols, 0.5F), two(2 * kRows), one(kRows), row(kCols);
  method.apply(ctx, {x.data(), 2, kCols}, {}, {two.data(), 2, kRows});
  method.apply(ctx, {x.data(), 1, kCols}, {}, {one.data(), 1, kRows});
  CHORAL_CHECK(std::memcmp(one.data(), two.data(), kRows * sizeof(float)) == 0, "a row that depends on its neighbour");
  for (int64_t r = 0; r < kRows; ++r) CHORAL_CHECK(method.read_row(r, row).ok(), "a row that cannot be read");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Machine machine;
  const auto* end = static_cast<const uint8_t*>(size == 0 ? nullptr : std::memchr(data, 0, size));
  if (end == nullptr) return 0;
  const std::string json = "{\"quantization_config\":" + std::string(data, end) + "}";
  const auto map = io::ConfigMap::parse_json(json, "fuzzed");
  if (!map.ok()) return 0;
  const auto config = quant::make_quant_config(*map, "auto");
  if (!config.ok()) return 0;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(end + 1), static_cast<size_t>(data + size - end - 1));
  const auto header = io::parse_safetensors(file, "fuzzed");
  for (const auto kind : {quant::LayerKind::kLinear, quant::LayerKind::kEmbedding, quant::LayerKind::kLmHead}) {
    const quant::LinearShape shape{.in = kCols, .out = {kRows}, .shard_names = {"l"}};
    const auto method = (*config)->get_quant_method(kind, shape);
    if (!method.ok() || !header.ok()) continue;
    Tensors tensors(file, *header);
    const Arena::Mark mark(machine.ctx.kernel.scratch);
    if (load(machine.ctx, **method, shape, tensors).ok()) use(machine.ctx, **method);
  }
  return 0;
}
