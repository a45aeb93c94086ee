#include "golden/gguf_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "base/check.h"
#include "golden/gguf_writer_names.h"
#include "io/gguf_types.h"
#include "io/test_files.h"

namespace choral::golden {
namespace {

using io::testing::GgufSpec;
using Json = nlohmann::json;

// A matrix or vector as it lies in a file.
struct Stored {
  std::vector<int64_t> shape;
  DType type = DType::kF32;
  std::string bytes;

  size_t row_size() const { return bytes.size() / static_cast<size_t>(shape[0]); }
};

// numpy: rows.reshape(heads, 2, rows // heads // 2).swapaxes(1, 2)
Stored permuted(const Stored& from, size_t heads) {
  Stored to = from;
  const size_t size = from.row_size(), half = static_cast<size_t>(from.shape[0]) / heads / 2;
  size_t row = 0;
  for (size_t head = 0; head < heads; ++head) {
    for (size_t j = 0; j < half; ++j) {
      for (size_t side = 0; side < 2; ++side, ++row) {
        std::memcpy(to.bytes.data() + row * size, from.bytes.data() + ((head * 2 + side) * half + j) * size, size);
      }
    }
  }
  return to;
}

// The parts of value heads among a tensor's first dimension, of `size` bytes an index: numpy's reshape(key_heads, of_key,
// …).swapaxes.
void tile_heads(char* begin, size_t size, size_t dim, const Json& config) {
  const size_t key_heads = config.at("linear_num_key_heads"),
               of_key = config.at("linear_num_value_heads").get<size_t>() / key_heads;
  const std::string grouped(begin, key_heads * of_key * dim * size);
  for (size_t key = 0; key < key_heads; ++key) {
    for (size_t i = 0; i < of_key; ++i) {
      std::memcpy(begin + (i * key_heads + key) * dim * size, grouped.data() + (key * of_key + i) * dim * size, dim * size);
    }
  }
}

template <class Change>
void change_each(Stored& tensor, Change change) {
  CHORAL_CHECK(tensor.type == DType::kF32, "what is changed in the tests is float32");
  for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(float)) {
    float value;
    std::memcpy(&value, tensor.bytes.data() + at, sizeof value);
    value = change(value);
    std::memcpy(tensor.bytes.data() + at, &value, sizeof value);
  }
}

// What llama.cpp's converter makes of a Mamba-2 layer's vectors and convolution.
Stored of_mamba2(const std::string& name, Stored tensor, const Json& config) {
  if (name.find(".mamba.") == name.npos) return tensor;
  if (name.ends_with("A_log")) change_each(tensor, [](float value) { return -std::exp(value); });
  if (name.ends_with("A_log") || name.ends_with(".D")) tensor.shape.push_back(1);
  if (name.ends_with("norm.weight")) {
    const int64_t groups = config.at("mamba_n_groups");
    tensor.shape = {groups, tensor.shape[0] / groups};
  }
  if (name.ends_with("conv1d.weight")) tensor.shape = {tensor.shape[0], tensor.shape[2]};
  return tensor;
}

// What llama.cpp's converter makes of a delta net's tensors.
Stored of_delta_net(const std::string& name, Stored tensor, const Json& config) {
  const size_t at = name.find("linear_attn.");
  if (at == name.npos) return tensor;
  const std::string part = name.substr(at + 12);
  const size_t heads = config.at("linear_num_value_heads"), dim = config.at("linear_value_head_dim");
  const bool tiled = architecture_name(config) != "qwen3next";
  const auto of_heads = [&](size_t head_dim) {
    if (!tiled) return;
    const size_t size = tensor.row_size();
    tile_heads(tensor.bytes.data() + (static_cast<size_t>(tensor.shape[0]) - heads * head_dim) * size, size, head_dim, config);
  };
  if (part.starts_with("in_proj_qkv") || part.starts_with("in_proj_z") || part.starts_with("conv1d")) of_heads(dim);
  if (part.starts_with("in_proj_a") || part.starts_with("in_proj_b") || part == "A_log" || part == "dt_bias") of_heads(1);
  if (part == "A_log") change_each(tensor, [](float value) { return -std::exp(value); });
  if (part.starts_with("conv1d")) tensor.shape = {tensor.shape[0], tensor.shape[2]};
  if (part.starts_with("out_proj") && tiled) {
    for (int64_t row = 0; row < tensor.shape[0]; ++row) {
      tile_heads(tensor.bytes.data() + static_cast<size_t>(row) * tensor.row_size(), sizeof(float), dim, config);
    }
  }
  return tensor;
}

// `name` is Hugging Face's; only what has the rows of q_proj's or k_proj's output is permuted.
Stored in_gguf_order(const std::string& name, Stored tensor, const Json& config) {
  const auto of_llama = {"llama", "smollm3", "granite", "granitemoe", "granitehybrid", "mistral3"};
  if (std::find(of_llama.begin(), of_llama.end(), architecture_name(config)) == of_llama.end()) return tensor;
  if (name.find("q_proj.") != name.npos) return permuted(tensor, config.at("num_attention_heads").get<size_t>());
  if (name.find("k_proj.") != name.npos) return permuted(tensor, config.at("num_key_value_heads").get<size_t>());
  return tensor;
}

// Gemma's norms are written as 1 + w.
Stored with_one(const std::string& name, Stored tensor, const Json& config) {
  if (!(is_gemma(config) || has_delta_nets(config)) || !name.ends_with("norm.weight")) return tensor;
  if (name.ends_with("linear_attn.norm.weight")) return tensor;
  change_each(tensor, [](float w) { return w + 1; });
  return tensor;
}

Stored turned_round(const Stored& from) {
  Stored to{{from.shape[1], from.shape[0]}, from.type, std::string(from.bytes.size(), '\0')};
  const auto rows = static_cast<size_t>(from.shape[0]), cols = static_cast<size_t>(from.shape[1]);
  const size_t width = from.row_size() / cols;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) {
      std::memcpy(to.bytes.data() + (c * rows + r) * width, from.bytes.data() + (r * cols + c) * width, width);
    }
  }
  return to;
}

void add(GgufSpec& spec, std::string name, const Stored& tensor) {
  std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
  spec.tensors.push_back({std::move(name), std::move(dims), io::ggml_from_dtype(tensor.type), tensor.bytes});
}

// numpy: kv_b.reshape(heads, keys + values, rank), parted along its second dimension, the keys' part with the last two swapped.
void add_latent_parts(GgufSpec& spec, const std::string& name, const Stored& kv_b, const Json& config) {
  const size_t heads = config.at("num_attention_heads"), keys = config.at("qk_nope_head_dim"), values = config.at("v_head_dim");
  const auto rank = static_cast<size_t>(kv_b.shape[1]), bytes = kv_b.row_size();
  const auto signed_heads = static_cast<int64_t>(heads);
  Stored k{{signed_heads, static_cast<int64_t>(rank), static_cast<int64_t>(keys)}, kv_b.type, {}};
  Stored v{{signed_heads, static_cast<int64_t>(values), static_cast<int64_t>(rank)}, kv_b.type, {}};
  for (size_t head = 0; head < heads; ++head) {
    const std::string rows = kv_b.bytes.substr(head * (keys + values) * bytes, (keys + values) * bytes);
    k.bytes += turned_round({{k.shape[2], k.shape[1]}, k.type, rows.substr(0, keys * bytes)}).bytes;
    v.bytes += rows.substr(keys * bytes);
  }
  std::string part = name;
  add(spec, part.replace(name.find("kv_b"), 4, "k_b"), k);
  part = name;
  add(spec, part.replace(name.find("kv_b"), 4, "v_b"), v);
}

// numpy: qkvz.reshape(key_heads, turn, hidden), parted along its second dimension; q, k and v joined again, each of all heads.
std::array<Stored, 2> qkv_and_z(const Stored& qkvz, const Json& config) {
  const size_t heads = config.at("linear_num_key_heads"), keys = config.at("linear_key_head_dim"), bytes = qkvz.row_size();
  const size_t values =
      config.at("linear_num_value_heads").get<size_t>() / heads * config.at("linear_value_head_dim").get<size_t>();
  const size_t turn = 2 * (keys + values);
  std::array<std::string, 4> parts;
  for (size_t head = 0; head < heads; ++head) {
    size_t row = head * turn;
    for (const auto& [part, rows] : {std::pair(0, keys), std::pair(1, keys), std::pair(2, values), std::pair(3, values)}) {
      parts[part] += qkvz.bytes.substr(row * bytes, rows * bytes);
      row += rows;
    }
  }
  const auto rows = [&](size_t of_head) { return static_cast<int64_t>(heads * of_head); };
  return {Stored{{rows(2 * keys + values), qkvz.shape[1]}, qkvz.type, parts[0] + parts[1] + parts[2]},
          Stored{{rows(values), qkvz.shape[1]}, qkvz.type, parts[3]}};
}

// gpt-oss's gate_up_proj of an expert: numpy's [::2] and [1::2].
std::array<Stored, 2> parted(const Stored& gate_up) {
  std::array<Stored, 2> parts{Stored{gate_up.shape, gate_up.type, {}}, Stored{gate_up.shape, gate_up.type, {}}};
  for (size_t row = 0; row < static_cast<size_t>(gate_up.shape[0]); ++row) {
    parts[row % 2].bytes += gate_up.bytes.substr(row * gate_up.row_size(), gate_up.row_size());
  }
  for (auto& part : parts) part.shape[0] /= 2;
  return parts;
}

// Granite's gate and up: numpy's chunk(2, dim=-2).
std::array<Stored, 2> in_halves(const Stored& gate_up) {
  const size_t half = gate_up.bytes.size() / 2;
  const std::vector<int64_t> shape{gate_up.shape[0] / 2, gate_up.shape[1]};
  return {Stored{shape, gate_up.type, gate_up.bytes.substr(0, half)}, Stored{shape, gate_up.type, gate_up.bytes.substr(half)}};
}

// Blocks of 32: a power of two, then bytes of which the i-th has element i below and element i + 16 above.
Stored in_mxfp4(const Stored& matrix) {
  constexpr size_t kBlock = 32;
  constexpr std::array<float, 8> kNumbers{0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  Stored out{matrix.shape, DType::kMXFP4, {}};
  for (size_t at = 0; at < matrix.bytes.size(); at += kBlock * sizeof(float)) {
    std::array<float, kBlock> block;
    std::memcpy(block.data(), matrix.bytes.data() + at, sizeof block);
    float most = 0;
    for (const float x : block) most = std::max(most, std::abs(x));
    const int power = most == 0 ? 0 : std::ilogb(most) - 2;  // the largest is 4 or 6 of them
    const auto code = [&](float x) {
      const auto* const found = std::find(kNumbers.begin(), kNumbers.end(), std::ldexp(std::abs(x), -power));
      CHORAL_CHECK(found != kNumbers.end(), "no number of MXFP4");
      return static_cast<int>(found - kNumbers.begin()) + (std::signbit(x) ? 8 : 0);
    };
    out.bytes += static_cast<char>(power + 127);
    for (size_t i = 0; i < kBlock / 2; ++i) out.bytes += static_cast<char>(code(block[i]) | code(block[i + kBlock / 2]) << 4);
  }
  return out;
}

class Metadata {
 public:
  Metadata(GgufSpec& spec, const Json& config) : spec_(spec), config_(config), prefix_(architecture_name(config) + ".") {}

  void number(const char* key, uint32_t value) { spec_.metadata.push_back(GgufSpec::kv_u32(prefix_ + key, value)); }
  void real(const char* key, float value) { spec_.metadata.push_back(GgufSpec::kv_f32(prefix_ + key, value)); }
  void truth(const char* key, bool value) {
    spec_.metadata.push_back(GgufSpec::kv(prefix_ + key, 7, value ? "\1" : std::string(1, '\0')));
  }
  void text(const char* key, const char* value) { spec_.metadata.push_back(GgufSpec::kv_string(prefix_ + key, value)); }
  // Of lists the first, which is all layers'.
  uint32_t count(const char* name) const {
    const Json& value = config_.at(name);
    return (value.is_array() ? value.front() : value).get<uint32_t>();
  }

  void all(const GgufForm& form) {
    spec_.metadata.push_back(GgufSpec::kv_string("general.architecture", architecture_name(config_)));
    if (is_gemma4(config_)) return gemma4();
    number("embedding_length", count("hidden_size"));
    const char* const mlp = config_.contains("intermediate_size_mlp") ? "intermediate_size_mlp" : "intermediate_size";
    if (config_.contains(mlp)) number("feed_forward_length", count(mlp));
    number("block_count", count("num_hidden_layers"));
    number("context_length", count("max_position_embeddings"));
    number("attention.head_count", count("num_attention_heads"));
    real("rope.freq_base", rope_base());
    if (config_.contains("layer_norm_eps")) {
      real("attention.layer_norm_epsilon", config_.at("layer_norm_eps").get<float>());
    } else {
      real("attention.layer_norm_rms_epsilon", config_.at("rms_norm_eps").get<float>());
    }
    config_.contains("kv_lora_rank") ? latent_heads(form) : heads();
    if (is_gemma(config_) || config_.at("model_type").get<std::string>().starts_with("phi") ||
        config_.at("model_type") == "gpt_oss") {
      number("attention.sliding_window", count("sliding_window"));
    }
    for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
      if (config_.contains(cap) && !config_.at(cap).is_null()) real(cap, config_.at(cap).get<float>());
    }
    if (config_.contains("num_experts_per_tok") || config_.contains("moe_k") || config_.contains("moe_topk")) experts();
    alternating_windows();
    multipliers();
    if (has_delta_nets(config_)) delta_nets();
    if (has_mamba2(config_)) mamba2();
    rope_scaling();
  }

 private:
  // Hunyuan's fixed factor is in it.
  float rope_base() const {
    const Json& rope = config_.contains("rope_parameters") ? config_.at("rope_parameters") : config_;
    const double base = rope.at("rope_theta");
    if (!config_.at("model_type").get<std::string>().starts_with("hunyuan_v1")) return static_cast<float>(base);
    const double dim = config_.at("head_dim");
    return static_cast<float>(base * std::pow(config_.at("rope_scaling").at("alpha").get<double>(), dim / (dim - 2)));
  }

  void alternating_windows() {
    const std::string type = config_.at("model_type");
    if (type != "olmo3" && type != "exaone4" && type != "cohere2") return;
    number("attention.sliding_window", count("sliding_window"));
    const int layers = config_.at("num_hidden_layers");
    std::string pattern = io::testing::le<uint32_t>(7) + io::testing::le<uint64_t>(layers);  // an array of truths
    for (int i = 0; i < layers; ++i) pattern += (i + 1) % 4 != 0 ? '\1' : '\0';
    spec_.metadata.push_back(GgufSpec::kv(prefix_ + "attention.sliding_window_pattern", 9, pattern));
  }

  void multipliers() {
    for (const auto& [hf, gguf] :
         {std::pair("attention_multiplier", "attention.scale"), std::pair("embedding_multiplier", "embedding_scale"),
          std::pair("residual_multiplier", "residual_scale"), std::pair("logits_scaling", "logit_scale"),
          std::pair("logit_scale", "logit_scale")}) {
      if (config_.contains(hf)) real(gguf, config_.at(hf).get<float>());
    }
  }

  // Beside the sizes or among rope_parameters.
  double rope(const char* key, double absent) const {
    if (config_.contains("rope_parameters")) return config_.at("rope_parameters").value(key, absent);
    return config_.value(key, absent);
  }

  void delta_nets() {
    number("ssm.group_count", count("linear_num_key_heads"));
    number("ssm.time_step_rank", count("linear_num_value_heads"));
    number("ssm.state_size", count("linear_key_head_dim"));
    number("ssm.inner_size", count("linear_num_value_heads") * count("linear_value_head_dim"));
    number("ssm.conv_kernel", count("linear_conv_kernel_dim"));
    number("full_attention_interval", 4);
  }

  void mamba2() {
    number("ssm.conv_kernel", count("mamba_d_conv"));
    number("ssm.state_size", count("mamba_d_state"));
    number("ssm.group_count", count("mamba_n_groups"));
    number("ssm.inner_size", count("mamba_expand") * count("hidden_size"));
    number("ssm.time_step_rank", count("mamba_n_heads"));
    truth("rope.scaling.finetuned", config_.at("position_embedding_type") == "rope");
  }

  // A list of numbers, or of truth values.
  void list(const char* key, const std::vector<uint32_t>& values, bool truths = false) {
    constexpr uint32_t kU32 = 4, kBool = 7, kArray = 9;
    std::string raw = io::testing::le(truths ? kBool : kU32) + io::testing::le(static_cast<uint64_t>(values.size()));
    for (const uint32_t value : values) raw += truths ? std::string(1, static_cast<char>(value)) : io::testing::le(value);
    spec_.metadata.push_back(GgufSpec::kv(prefix_ + key, kArray, raw));
  }

  void gemma4() {
    const uint32_t layers = count("num_hidden_layers"), shared = count("num_kv_shared_layers"), full = count("global_head_dim");
    std::vector<uint32_t> windows, kv_heads, widths;
    for (uint32_t i = 0; i < layers; ++i) {
      windows.push_back(config_.at("layer_types").at(i) == "sliding_attention" ? 1 : 0);
      const bool other = windows[i] == 0 && config_.contains("num_global_key_value_heads");
      kv_heads.push_back(count(other ? "num_global_key_value_heads" : "num_key_value_heads"));
      const bool wide = config_.at("use_double_wide_mlp").get<bool>() && i >= layers - shared;
      widths.push_back(count("intermediate_size") * (wide ? 2 : 1));
    }
    number("embedding_length", count("hidden_size"));
    number("block_count", layers);
    number("context_length", count("max_position_embeddings"));
    number("attention.head_count", count("num_attention_heads"));
    list("attention.head_count_kv", kv_heads);
    list("attention.sliding_window_pattern", windows, /*truths=*/true);
    number("attention.sliding_window", count("sliding_window"));
    number("attention.shared_kv_layers", shared);
    for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count"}) number(key, full);
    for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"}) {
      number(key, count("head_dim"));
    }
    count("hidden_size_per_layer_input") > 0 ? list("feed_forward_length", widths)
                                             : number("feed_forward_length", widths.front());
    number("embedding_length_per_layer_input", count("hidden_size_per_layer_input"));
    real("attention.layer_norm_rms_epsilon", config_.at("rms_norm_eps").get<float>());
    const Json& rope = config_.at("rope_parameters");
    real("rope.freq_base", rope.at("full_attention").at("rope_theta").get<float>());
    real("rope.freq_base_swa", rope.at("sliding_attention").at("rope_theta").get<float>());
    if (!config_.at("final_logit_softcapping").is_null()) {
      real("final_logit_softcapping", config_.at("final_logit_softcapping").get<float>());
    }
    if (config_.at("enable_moe_block").get<bool>()) {
      number("expert_count", count("num_experts"));
      number("expert_used_count", count("top_k_experts"));
      number("expert_feed_forward_length", count("moe_intermediate_size"));
    }
    // What is not to turn is divided by as much as to stand still.
    std::vector<float> divisors(full / 2, 1e30F);
    const double share = rope.at("full_attention").at("partial_rotary_factor");
    std::fill_n(divisors.begin(), static_cast<size_t>(share * full / 2), 1.0F);
    const std::string_view bytes(reinterpret_cast<const char*>(divisors.data()), divisors.size() * sizeof(float));
    add(spec_, "rope_freqs.weight", {{std::ssize(divisors)}, DType::kF32, std::string(bytes)});
  }

  void heads() {
    if (has_mamba2(config_)) {
      std::vector<uint32_t> kv_heads;
      for (const auto& type : config_.at("layer_types")) {
        kv_heads.push_back(
            type.get<std::string>().ends_with("attention") && type != "linear_attention" ? count("num_key_value_heads") : 0);
      }
      list("attention.head_count_kv", kv_heads);
    } else {
      number("attention.head_count_kv", count("num_key_value_heads"));
    }
    const auto whole = count("hidden_size") / count("num_attention_heads");
    const auto head_dim = config_.contains("head_dim") ? count("head_dim") : whole;
    const auto turning = static_cast<uint32_t>(head_dim * rope("partial_rotary_factor", 1.0));
    number("rope.dimension_count", config_.value("rotary_dim", turning));
    if (!config_.contains("head_dim")) return;
    number("attention.key_length", head_dim);
    number("attention.value_length", head_dim);
  }

  void latent_heads(const GgufForm& form) {
    const uint32_t rope = count("qk_rope_head_dim"), keys = count("qk_nope_head_dim") + rope, rank = count("kv_lora_rank");
    const bool is_new = !form.early;
    number("attention.head_count_kv", is_new ? 1 : count("num_attention_heads"));
    if (!config_.at("q_lora_rank").is_null()) number("attention.q_lora_rank", count("q_lora_rank"));
    number("attention.kv_lora_rank", rank);
    number("attention.key_length", is_new ? rank + rope : keys);
    number("attention.value_length", is_new ? rank : count("v_head_dim"));
    if (is_new) number("attention.key_length_mla", keys);
    if (is_new) number("attention.value_length_mla", count("v_head_dim"));
    number("rope.dimension_count", rope);
  }

  void experts() {
    const bool deepseek = config_.contains("n_routed_experts");  // or what has its routing
    for (const char* name : {"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"}) {
      if (config_.contains(name)) number("expert_count", count(name));
    }
    for (const char* name : {"num_experts_per_tok", "moe_k", "moe_topk"}) {
      if (config_.contains(name)) number("expert_used_count", count(name));
    }
    number("expert_feed_forward_length",
           count(config_.contains("moe_intermediate_size") ? "moe_intermediate_size" : "intermediate_size"));
    if (config_.contains("shared_expert_intermediate_size")) {
      number("expert_shared_feed_forward_length", count("shared_expert_intermediate_size"));
    }
    if (config_.contains("shared_intermediate_size")) {
      number("expert_shared_feed_forward_length", count("shared_intermediate_size"));
    }
    if (config_.contains("num_shared_expert")) {
      number("expert_shared_count", count("num_shared_expert"));
      number("expert_shared_feed_forward_length", count("intermediate_size"));
    }
    if (config_.at("model_type") == "ernie4_5_moe") {
      number("expert_shared_count", count("moe_num_shared_experts"));
      number("leading_dense_block_count", count("moe_layer_start_index"));
      number("interleave_moe_layer_step", count("moe_layer_interval"));
    }
    if (config_.contains("interleave_moe_layer_step")) number("interleave_moe_layer_step", count("interleave_moe_layer_step"));
    if (config_.at("model_type") == "minimax_m2") number("expert_gating_func", 2);
    if (!deepseek) return;
    number("expert_shared_count", count("n_shared_experts"));
    number("leading_dense_block_count", count("first_k_dense_replace"));
    real("expert_weights_scale", config_.at("routed_scaling_factor").get<float>());
    if (config_.at("norm_topk_prob").get<bool>()) truth("expert_weights_norm", true);
    number("expert_group_count", count("n_group"));
    number("expert_group_used_count", count("topk_group"));
    if (config_.at("model_type") != "deepseek_v2") number("expert_gating_func", 2);
  }

  void rope_scaling() {
    const char* key = config_.contains("rope_parameters") ? "rope_parameters" : "rope_scaling";
    if (!config_.contains(key) || config_.at(key).is_null() || config_.at(key).contains("alpha")) return;
    const Json& scaling = config_.at(key);
    const std::string type = scaling.contains("rope_type") ? scaling.at("rope_type") : scaling.at("type");
    if (type == "default") return;
    number("rope.scaling.original_context_length", scaling.at("original_max_position_embeddings").get<uint32_t>());
    if (type == "longrope") return long_rope(scaling);
    CHORAL_CHECK(type == "yarn", "of the tests' models with GGUF files");
    text("rope.scaling.type", "yarn");
    real("rope.scaling.factor", scaling.at("factor").get<float>());
    if (scaling.contains("beta_fast")) real("rope.scaling.yarn_beta_fast", scaling.at("beta_fast").get<float>());
    if (scaling.contains("beta_slow")) real("rope.scaling.yarn_beta_slow", scaling.at("beta_slow").get<float>());
    if (scaling.contains("attention_factor")) {
      real("rope.scaling.yarn_attn_factor", scaling.at("attention_factor").get<float>());
    }
    if (scaling.contains("llama_4_scaling_beta")) {
      real("attention.temperature_scale", scaling.at("llama_4_scaling_beta").get<float>());
      real("rope.scaling.yarn_log_multiplier", scaling.at("mscale_all_dim").get<float>());  // here it is no tenth
    } else if (scaling.contains("mscale_all_dim")) {
      real("rope.scaling.yarn_log_multiplier", static_cast<float>(0.1 * scaling.at("mscale_all_dim").get<double>()));
    }
  }

  void long_rope(const Json& scaling) {
    const double original = scaling.at("original_max_position_embeddings"), longest = config_.at("max_position_embeddings");
    const double usual = std::sqrt(1 + std::log(longest / original) / std::log(original));
    real("rope.scaling.attn_factor", static_cast<float>(scaling.value("long_mscale", usual)));
    for (const char* length : {"long", "short"}) {
      const std::vector<float> factors = scaling.at(std::string(length) + "_factor");
      const std::string_view bytes(reinterpret_cast<const char*>(factors.data()), factors.size() * sizeof(float));
      add(spec_, "rope_factors_" + std::string(length) + ".weight", {{std::ssize(factors)}, DType::kF32, std::string(bytes)});
    }
  }

  GgufSpec& spec_;
  const Json& config_;
  std::string prefix_;
};

}  // namespace

std::string gguf_model(const WeightSet& weights, const Json& config, const GgufForm& form) {
  GgufSpec spec;
  Metadata(spec, config).all(form);
  std::map<std::string, std::map<int, Stored>> stacked;  // of each expert
  const auto stack = [&](const std::string& name, const Stored& tensor) {
    constexpr std::string_view kExperts = ".experts.";
    stacked[stacked_name(name)][std::stoi(name.substr(name.find(kExperts) + kExperts.size()))] = tensor;
  };
  for (const auto& [name, matrix] : weights) {
    const Stored tensor{matrix.shape, DType::kF32,
                        std::string(reinterpret_cast<const char*>(matrix.values.data()), matrix.values.size() * sizeof(float))};
    if (const size_t at = name.find("gate_up_proj");
        at != name.npos && name.find(".experts.") != name.npos && !is_gemma4(config)) {
      const auto [gate, up] = config.at("model_type") == "gpt_oss" ? parted(tensor) : in_halves(tensor);
      stack(std::string(name).replace(at, 12, "gate_proj"), gate);
      stack(std::string(name).replace(at, 12, "up_proj"), up);
    } else if (name.find(".experts.") != name.npos) {
      stack(name, tensor);
    } else if (const size_t input = name.find("input_linear"); input != name.npos) {
      const auto [gate, up] = in_halves(tensor);
      add(spec, gguf_name(std::string(name).replace(input, 12, "gate_proj"), config), gate);
      add(spec, gguf_name(std::string(name).replace(input, 12, "up_proj"), config), up);
    } else if (matrix.shape.size() == 2 && matrix.shape[0] == 1) {  // llama.cpp's converter makes a vector of it
      add(spec, gguf_name(name, config), {{matrix.shape[1]}, tensor.type, tensor.bytes});
    } else if (const size_t qkvz = name.find("in_proj_qkvz"); qkvz != name.npos && !form.early) {
      const auto [qkv, z] = qkv_and_z(tensor, config);
      add(spec, gguf_name(std::string(name).replace(qkvz, 12, "in_proj_qkv"), config), qkv);
      add(spec, gguf_name(std::string(name).replace(qkvz, 12, "in_proj_z"), config), z);
    } else if (!form.early && name.ends_with("kv_b_proj.weight")) {
      add_latent_parts(spec, gguf_name(name, config), tensor, config);
    } else {
      const Stored changed = of_mamba2(name, of_delta_net(name, in_gguf_order(name, tensor, config), config), config);
      add(spec, gguf_name(name, config), with_one(name, changed, config));
    }
  }
  for (const auto& [name, experts] : stacked) {
    Stored all = experts.begin()->second;
    all.shape.insert(all.shape.begin(), std::ssize(experts));
    all.bytes.clear();
    for (const auto& [number, tensor] : experts) all.bytes += tensor.bytes;
    add(spec, name, form.mxfp4_experts && name.ends_with(".weight") ? in_mxfp4(all) : all);
  }
  return spec.build();
}

std::string gguf_adapter(const lora::AdapterFile& adapter, double alpha, const Json& config) {
  GgufSpec spec;
  spec.metadata = {GgufSpec::kv_string("general.architecture", architecture_name(config)),
                   GgufSpec::kv_string("general.type", "adapter"), GgufSpec::kv_string("adapter.type", "lora"),
                   GgufSpec::kv_f32("adapter.lora.alpha", static_cast<float>(alpha))};
  for (const auto& [name, tensor] : adapter.tensors) {
    const TensorView& view = tensor.view;
    CHORAL_CHECK(name.starts_with("base_model.model."), "PEFT's names begin so");
    std::string hf = name.substr(17);
    std::string ending;
    for (const auto& [peft, gguf] : {std::pair(".lora_A.weight", ".lora_a"), std::pair(".lora_B.weight", ".lora_b"),
                                     std::pair(".lora_embedding_A", ".lora_a"), std::pair(".lora_embedding_B", ".lora_b")}) {
      const size_t at = hf.find(peft);
      if (at == hf.npos) continue;
      hf.replace(at, std::string::npos, ".weight");
      ending = gguf;
    }
    CHORAL_CHECK(!ending.empty() || hf.ends_with("norm.weight"), "llama.cpp writes pairs and norms only");
    Stored stored{{view.shape.dims().begin(), view.shape.dims().end()},
                  view.dtype,
                  std::string(reinterpret_cast<const char*>(view.data), view.size_bytes())};
    if (ending == ".lora_b") stored = in_gguf_order(hf, std::move(stored), config);
    if (name.ends_with(".lora_embedding_A")) stored = turned_round(stored);
    add(spec, gguf_name(hf, config) + ending, with_one(hf, std::move(stored), config));
  }
  return spec.build();
}

}  // namespace choral::golden
