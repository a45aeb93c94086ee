#include "lora/peft/gguf_adapter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "io/gguf_names.h"
#include "lora/peft/peft_helper.h"

namespace choral::lora {
namespace {

// [rows, cols] as float, turned round.
Result<AdapterTensor> transposed(const TensorView& view) {
  CHORAL_TRY(const Tensor from, to_float_tensor(view));
  const int64_t rows = view.shape[0], cols = view.shape[1];
  CHORAL_TRY(Tensor to, Tensor::allocate(DType::kF32, {cols, rows}));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      to.as<float>()[c * rows + r] = from.as<float>()[r * cols + c];
    }
  }
  return AdapterTensor(std::move(to));
}

// Each element as float, less `added`.
Result<AdapterTensor> less(const TensorView& view, float added) {
  CHORAL_TRY(Tensor out, to_float_tensor(view));
  for (float& value : out.as<float>()) value -= added;
  return AdapterTensor(std::move(out));
}

// "blk.0.attn_q.weight" -> "model.layers.0.self_attn.q_proj"; empty when io knows no counterpart.
std::string module_of(const io::GgufArchitecture& architecture, std::string_view gguf_weight) {
  const std::string name = io::hf_tensor_name(architecture, gguf_weight);
  constexpr std::string_view kTail = ".weight";
  if (name == gguf_weight || !name.ends_with(kTail)) return {};
  return name.substr(0, name.size() - kTail.size());
}

bool is_rotated(std::string_view name) {
  return name.find(".self_attn.q_proj.") != name.npos || name.find(".self_attn.k_proj.") != name.npos;
}

// The file has each head's rows as pairs (j, j + d/2) side by side; PEFT, like Hugging Face, has the first halves, then the
// second.
Result<AdapterTensor> half_split(const AdapterTensor& b, int64_t head_dim) {
  const TensorView& view = b.view;
  CHORAL_TRY(Tensor out, Tensor::allocate(view.dtype, view.shape));
  const int64_t bytes = row_bytes(view.dtype, view.cols());
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < view.shape[0]; ++row) {
    const int64_t head = row / head_dim, in_head = row % head_dim;
    const int64_t from = head * head_dim + 2 * (in_head % half) + in_head / half;
    std::memcpy(out.data() + row * bytes, view.data + from * bytes, bytes);
  }
  return AdapterTensor(std::move(out));
}

}  // namespace

Result<std::vector<NamedTensor>> read_gguf_adapter(const std::shared_ptr<const io::GgufFile>& file, bool shapes_only) {
  CHORAL_TRY(const io::GgufArchitecture architecture, io::gguf_architecture(*file));
  std::vector<NamedTensor> out;
  for (const auto& tensor : file->tensors()) {
    std::string_view weight = tensor.name;
    const bool is_a = weight.ends_with(".lora_a"), is_b = weight.ends_with(".lora_b");
    if (is_a || is_b) weight.remove_suffix(7);
    const std::string module = module_of(architecture, weight);
    if (module.empty() || (!is_a && !is_b && !weight.ends_with("_norm.weight"))) {
      return unsupported("{}: '{}' is no tensor of a LoRA adapter that is understood", file->path(), printable(tensor.name));
    }
    if (architecture.delta_nets && module.find(".linear_attn.") != module.npos) {
      return unsupported(
          "{}: '{}' has the heads of a delta net in llama.cpp's order, which is not undone here; give the folder "
          "that PEFT wrote",
          file->path(), printable(tensor.name));
    }
    CHORAL_TRY(const TensorView view, file->find(tensor.name));
    NamedTensor named{module + ".weight", {view, file}};
    const bool embedding = module == "model.embed_tokens";
    if (is_a) named.name = module + (embedding ? ".lora_embedding_A" : ".lora_A.weight");
    if (is_b) named.name = module + (embedding ? ".lora_embedding_B" : ".lora_B.weight");
    if (is_a && embedding) {
      if (view.shape.rank() != 2) return corrupt("{}: '{}' is no matrix", file->path(), printable(tensor.name));
      if (shapes_only) {
        named.tensor.view.dtype = DType::kF32;
        named.tensor.view.shape = {view.shape[1], view.shape[0]};
      } else {
        CHORAL_TRY(named.tensor, transposed(view));
      }
    }
    const float added = io::gguf_added(architecture, named.name);
    if (added != 0 && !shapes_only) {
      CHORAL_TRY(named.tensor, less(view, added));
    }
    out.push_back(std::move(named));
  }
  return out;
}

Result<std::vector<NamedTensor>> undo_gguf_row_order(const AdapterFile& file, const GgufRowOrder& order) {
  std::vector<NamedTensor> out = file.tensors;
  if (!order.interleaved_qk || file.shapes_only) return out;
  for (auto& [name, tensor] : out) {
    if (!name.ends_with(".lora_B.weight") || !is_rotated(name) || tensor.view.shape.rank() != 2) continue;
    if (order.head_dim <= 0) {
      return invalid_argument("{}: '{}' is in llama.cpp's row order, which cannot be undone without the model's head size",
                              file.path.string(), printable(name));
    }
    if (order.head_dim % 2 != 0 || tensor.view.shape[0] % order.head_dim != 0) {
      return invalid_argument("{}: '{}' has {} rows, which are no heads of {}", file.path.string(), printable(name),
                              tensor.view.shape[0], order.head_dim);
    }
    CHORAL_TRY(tensor, half_split(tensor, order.head_dim));
  }
  return out;
}

Result<PEFTHelper> PEFTHelper::from_gguf(const io::GgufFile& file) {
  const io::ConfigMap& metadata = file.metadata();
  CHORAL_TRY(const std::string type, metadata.get_string_or("general.type", "model"));
  if (type != "adapter") {
    return invalid_argument("{} is a {}, not an adapter (general.type)", file.path(), printable(type));
  }
  CHORAL_TRY(const std::string kind, metadata.get_string_or("adapter.type", ""));
  if (kind != "lora") return unsupported("{}: adapter.type '{}' is not supported; lora is", file.path(), printable(kind));
  CHORAL_TRY(const io::GgufArchitecture architecture, io::gguf_architecture(file));

  PEFTHelper out;
  out.source = file.path();
  out.targets_known = false;
  out.ranks_known = false;
  out.gguf_architecture = std::string(architecture.name);
  out.gguf_interleaved_qk = architecture.interleaved_qk;
  CHORAL_TRY(out.lora_alpha, metadata.get_double_or("adapter.lora.alpha", 0));
  if (std::abs(out.lora_alpha) > kMostAlpha) return corrupt("{}: adapter.lora.alpha is {}", out.source, out.lora_alpha);
  CHORAL_TRY(out.base_model_name_or_path, metadata.get_string_or("general.base_model.0.name", ""));
  if (metadata.contains("adapter.alora.invocation_tokens")) {
    CHORAL_TRY(const auto ids, metadata.get_ints("adapter.alora.invocation_tokens", io::kNotNegative));
    if (ids.size() > 4096) return too_large("{}: {} invocation tokens", out.source, ids.size());
    out.alora_invocation_tokens.assign(ids.begin(), ids.end());
  }
  out.r = 1;
  for (const auto& tensor : file.tensors()) {
    if (tensor.name.ends_with(".lora_b") && tensor.shape.rank() == 2) out.r = std::max(out.r, tensor.shape[1]);
  }
  return out;
}

}  // namespace choral::lora
