#include "synthetic/adapter.h"

#include <cmath>
#include <fstream>

#include "base/float16.h"
#include "io/safetensors_writer.h"
#include "synthetic/random.h"

namespace choral::synthetic {
namespace {

constexpr float kAlphaOverRank = 2.0F;

Result<lora::NamedTensor> random_tensor(std::string name, Shape shape, DType dtype, float bound, Random& random) {
  CHORAL_TRY(Tensor tensor, Tensor::allocate(dtype, shape));
  const int64_t count = shape.elements();
  for (int64_t i = 0; i < count; ++i) {
    const float x = random.uniform(bound);
    switch (dtype) {
      case DType::kF32: tensor.as<float>()[i] = x; break;
      case DType::kF16: tensor.as<uint16_t>()[i] = to_float16(x).bits; break;
      case DType::kBF16: tensor.as<uint16_t>()[i] = to_bfloat16(x).bits; break;
      default: return unsupported("adapters are float32, float16 or bfloat16, not {}", dtype_name(dtype));
    }
  }
  return lora::NamedTensor{std::move(name), lora::AdapterTensor(std::move(tensor))};
}

Result<std::vector<lora::NamedTensor>> random_tensors(std::span<const lora::LoRATarget> targets, const Adapter& adapter) {
  Random random(adapter.seed);
  std::vector<lora::NamedTensor> tensors;
  const float b_bound = 0.05F / std::sqrt(static_cast<float>(adapter.rank));
  for (const auto& target : targets) {
    if (target.kind != lora::TargetKind::kLinear) continue;
    for (const auto& member : target.members) {
      const std::string prefix = "base_model.model." + member.name;
      const float a_bound = 1.0F / std::sqrt(static_cast<float>(target.in));
      CHORAL_TRY(auto a, random_tensor(prefix + ".lora_A.weight", {adapter.rank, target.in}, adapter.dtype, a_bound, random));
      CHORAL_TRY(auto b, random_tensor(prefix + ".lora_B.weight", {member.out, adapter.rank}, adapter.dtype, b_bound, random));
      tensors.push_back(std::move(a));
      tensors.push_back(std::move(b));
    }
  }
  return tensors;
}

std::string config_text(int64_t rank) {
  return fmt::format(R"({{"peft_type": "LORA", "r": {}, "lora_alpha": {}, "target_modules": "all-linear", "bias": "none"}})",
                     rank, static_cast<int64_t>(kAlphaOverRank * static_cast<float>(rank)));
}

}  // namespace

Result<lora::LoRAModel> make_adapter(std::span<const lora::LoRATarget> targets, const Adapter& adapter) {
  CHORAL_TRY(const auto tensors, random_tensors(targets, adapter));
  CHORAL_TRY(const auto config, io::ConfigMap::parse_json(config_text(adapter.rank), "synthetic adapter"));
  CHORAL_TRY(const auto peft, lora::PEFTHelper::from_config(config));
  return lora::LoRAModel::from_lora_tensors(tensors, peft, targets);
}

Result<int64_t> write_adapter(const std::filesystem::path& directory, std::span<const lora::LoRATarget> targets,
                              const Adapter& adapter) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return unavailable("cannot make {}: {}", directory.string(), error.message());
  CHORAL_TRY(const auto tensors, random_tensors(targets, adapter));
  std::vector<io::TensorToWrite> files;
  for (const auto& tensor : tensors) files.push_back({tensor.name, tensor.tensor.view});
  CHORAL_RETURN_IF_ERROR(io::write_safetensors(directory / "adapter_model.safetensors", files, {{"format", "pt"}}));
  std::ofstream config(directory / "adapter_config.json");
  config << config_text(adapter.rank) << '\n';
  config.close();
  if (!config) return unavailable("cannot write {}", (directory / "adapter_config.json").string());
  const auto size_bytes = std::filesystem::file_size(directory / "adapter_model.safetensors", error);
  if (error) return unavailable("cannot examine {}: {}", directory.string(), error.message());
  return static_cast<int64_t>(size_bytes);
}

}  // namespace choral::synthetic
