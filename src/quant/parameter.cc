#include "quant/parameter.h"

#include <algorithm>

namespace choral::quant {
namespace {

bool accepts(StoredAs wanted, DType type) {
  const auto& f = facts(type);
  switch (wanted) {
    case StoredAs::kFloat: return f.is_floating;
    case StoredAs::kFloatOrBlocks: return f.is_floating || f.is_block;
    case StoredAs::kInt8: return type == DType::kI8;
    case StoredAs::kUint8: return type == DType::kU8;
    case StoredAs::kInt32: return type == DType::kI32;
    case StoredAs::kFloatOrInt64: return f.is_floating || type == DType::kI64;
    case StoredAs::kFloat8: return type == DType::kF8E4M3;
    case StoredAs::kFloatOrE8M0: return f.is_floating || type == DType::kF8E8M0 || type == DType::kU8;
    case StoredAs::kInteger: return type == DType::kI8 || type == DType::kI32 || type == DType::kI64;
  }
  return false;
}

Status wrong_type(std::string_view name, DType type, StoredAs wanted) {
  constexpr std::string_view kNames[] = {
      "a float type", "a float type or GGUF blocks", "int8", "uint8", "int32", "an integer type", "a float type or int64",
      "float8_e4m3",  "a float type or float8_e8m0"};
  return unsupported(
      "tensor {} is stored as {}, {} is wanted; a quantised checkpoint says how it was made in quantization_config of "
      "config.json",
      name, dtype_name(type), kNames[static_cast<size_t>(wanted)]);
}

int64_t loaded_bytes(const Parameter& parameter) {
  int64_t total = 0;
  for (const auto& shard : parameter.shards) {
    TensorView view = shard.tensor.view;
    if (shard.cut) view.shape = shard.cut->shape;
    total += shard.loaded() ? view.size_bytes() : 0;
  }
  return total;
}

}  // namespace

Parameter& ParameterSet::add(std::string name, StoredAs stored_as, Presence presence) {
  return parameters_.emplace_back(Parameter{std::move(name), stored_as, {}, presence});
}

Parameter& ParameterSet::get(std::string_view name) {
  for (auto& parameter : parameters_) {
    if (parameter.name == name) return parameter;
  }
  CHORAL_CHECK(false, "the quant method asks for a parameter it never registered");
}

const Parameter* ParameterSet::find(std::string_view name) const {
  for (const auto& parameter : parameters_) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

Result<io::SourceTensor> load_shard(WeightSource& source, const Parameter& parameter, const Shard& shard) {
  if (parameter.presence == Presence::kOptional && !source.contains(shard.name)) return io::SourceTensor();
  std::vector<Shape> shapes = shard.other_shapes;
  shapes.insert(shapes.begin(), shard.shape);
  CHORAL_TRY(auto tensor, source.take_any_of(shard.name, shapes));
  if (!accepts(parameter.stored_as, tensor.view.dtype)) return wrong_type(shard.name, tensor.view.dtype, parameter.stored_as);
  return tensor;
}

Status ParameterSet::weight_loader(WeightSource& source) {
  for (auto& parameter : parameters_) {
    for (auto& shard : parameter.shards) {
      CHORAL_TRY(shard.tensor, load_shard(source, parameter, shard));
    }
  }
  return {};
}

int64_t ParameterSet::stored_bytes() const {
  int64_t total = 0;
  for (const auto& parameter : parameters_) total += loaded_bytes(parameter);
  return total;
}

int64_t ParameterSet::companion_bytes() const {
  int64_t largest = 0;
  for (const auto& parameter : parameters_) largest = std::max(largest, loaded_bytes(parameter));
  return stored_bytes() - largest;
}

void ParameterSet::release(WeightSource& source) {
  for (auto& parameter : parameters_) {
    for (auto& shard : parameter.shards) {
      if (shard.loaded()) source.release(shard.name);
      shard.tensor = {};
      shard.memory = {};
    }
  }
}

}  // namespace choral::quant
