#include "models/model_equations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/decoder.h"
#include "models/gemma4_model.h"

namespace choral::models {
namespace {

// Every field of each struct is bound to a name, so that one that is added does not compile before it stands here.
class Facts {
 public:
  explicit Facts(std::vector<ModelFact>& out) : out_(out) {}

  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) void add(std::string_view name, T value) {
    out_.push_back({prefix_ + std::string(name), static_cast<double>(value)});
  }
  void add(std::string_view name, std::string_view value) {
    out_.push_back({prefix_ + std::string(name), 0, fmt::format("'{}'", value)});
  }
  template <class T>
  void add(std::string_view name, const std::optional<T>& value) {
    if (value) add(name, *value);
  }
  template <class T>
  void add(std::string_view name, const std::vector<T>& values) {
    for (size_t i = 0; i < values.size(); ++i) within(name, [&] { add(fmt::format("{}", i), T(values[i])); });
  }

  void add(std::string_view name, const NormNames& value) {
    within(name, [&] {
      const auto& [attention, after_attention, mlp, after_mlp] = value;
      add("attention", attention), add("after_attention", after_attention);
      add("mlp", mlp), add("after_mlp", after_mlp);
    });
  }
  void add(std::string_view name, const kernels::PositionScale& value) {
    within(name, [&] {
      const auto& [beta, period] = value;
      add("beta", beta), add("period", period);
    });
  }
  void add(std::string_view name, const kernels::ClampedSwiglu& value) {
    within(name, [&] {
      const auto& [alpha, limit] = value;
      add("alpha", alpha), add("limit", limit);
    });
  }
  void add(std::string_view name, const layers::FusedMoE::ExpertNames& value) {
    within(name, [&] {
      const auto& [router, gate, up, down, shared, selection_bias, selection_bias_row, router_in_5] = value;
      static_cast<void>(router_in_5);  // what adapters' files call it
      add("router", router), add("gate", gate), add("up", up), add("down", down), add("shared", shared);
      add("selection_bias", selection_bias), add("selection_bias_row", selection_bias_row);
    });
  }
  void add(std::string_view name, const kernels::MoeGating& value) {
    within(name, [&] {
      const auto& [scoring, bias, groups, top_groups, group_score, top_k, renormalise, routed_scaling, jitter, expert_scale] =
          value;
      static_cast<void>(bias), static_cast<void>(expert_scale);  // a spec has none: they are tensors
      add("scoring", scoring), add("groups", groups), add("top_groups", top_groups), add("top_k", top_k);
      if (groups > 1) add("group_score", group_score);
      add("renormalise", renormalise), add("routed_scaling", routed_scaling), add("jitter", jitter);
    });
  }
  void add(std::string_view name, const MoeSpec& value) {
    within(name, [&] {
      const auto& [block, names, experts, intermediate, shared_intermediate, shared_block, shared_linears, shared_gate, gating,
                   selection_bias, bias, weigh_input, merged_gate_up, swiglu, layers] = value;
      add("experts", experts), add("intermediate", intermediate), add("shared_intermediate", shared_intermediate);
      add("gating", gating), add("selection_bias", selection_bias), add("bias", bias), add("weigh_input", weigh_input);
      add("swiglu", swiglu), add("layers", layers), add("merged_gate_up", merged_gate_up);
      add("block", block), add("names", names);
      if (shared_intermediate == 0) return;
      add("shared_block", shared_block), add("shared_linears", shared_linears), add("shared_gate", shared_gate);
    });
  }
  void add(std::string_view name, const LatentSpec& value) {
    within(name, [&] {
      const auto& [q_rank, kv_rank, nope_dim, rope_dim, value_dim, bias] = value;
      add("q_rank", q_rank), add("kv_rank", kv_rank), add("nope_dim", nope_dim);
      add("rope_dim", rope_dim), add("value_dim", value_dim), add("bias", bias);
    });
  }
  void add(std::string_view name, const DeltaNetSpec& value) {
    within(name, [&] {
      const auto& [layer, layers] = value;
      const auto& [prefix, hidden, key_heads, value_heads, key_dim, value_dim, conv_taps, eps, in_turns, out_proj_tiled] = layer;
      static_cast<void>(prefix), static_cast<void>(hidden), static_cast<void>(eps);  // the decoder's
      static_cast<void>(out_proj_tiled);                                             // how the file has it
      add("key_heads", key_heads), add("value_heads", value_heads), add("key_dim", key_dim), add("value_dim", value_dim);
      add("conv_taps", conv_taps), add("heads_in_turns", in_turns), add("layers", layers);
    });
  }
  void add(std::string_view name, const Mamba2Spec& value) {
    within(name, [&] {
      const auto& [layer, layers] = value;
      const auto& [prefix, hidden, groups, heads, head_dim, state_dim, conv_taps, conv_bias, proj_bias, least_step, most_step,
                   eps] = layer;
      static_cast<void>(prefix), static_cast<void>(hidden), static_cast<void>(eps);  // the decoder's
      add("groups", groups), add("heads", heads), add("head_dim", head_dim), add("state_dim", state_dim);
      add("conv_taps", conv_taps), add("conv_bias", conv_bias), add("proj_bias", proj_bias);
      add("least_step", least_step), add("most_step", most_step), add("layers", layers);
    });
  }
  void add(std::string_view name, const layers::EmbeddingLayers::Spec& value) {
    within(name, [&] {
      const auto& [prefix, in, out, bias, is_tanh] = value;
      add("prefix", prefix), add("in", in), add("out", out), add("bias", bias), add("is_tanh", is_tanh);
    });
  }
  void add(std::string_view name, const Gemma4Heads& value) {
    within(name, [&] {
      const auto& [head_dim, kv_heads] = value;
      add("head_dim", head_dim), add("kv_heads", kv_heads);
    });
  }

  // The frequencies, of texts as long as the model was first trained on and of longer ones.
  void add(std::string_view name, const kernels::RotaryParams& params) {
    within(name, [&] {
      auto table_of = params;
      for (const int64_t length : {int64_t{1}, params.original_max_position + 1}) {
        table_of.max_positions = length;
        const auto table = kernels::RotaryTable::make(table_of);
        if (!table.ok()) {
          if (status_.ok()) status_ = table.status();
          return;
        }
        within(length == 1 ? "short" : "long", [&] {
          const auto frequencies = table->inv_freq();
          add("frequency", std::vector<float>(frequencies.begin(), frequencies.end()));
          add("attention_factor", table->attention_factor());
        });
        if (params.scaling != kernels::RotaryScaling::kLongRope) break;
      }
      add("head_dim", params.head_dim), add("rotary_dim", params.rotary_dim), add("interleaved", params.interleaved);
      add("depends_on_length", params.scaling == kernels::RotaryScaling::kDynamic);
    });
  }

  void add(const DecoderSpec& spec) {
    const auto& [hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, max_positions, rms_norm_eps, hidden_act,
                 qkv_bias, output_bias, attention_gate, attention_sinks, sees_later, mlp_bias, merged_projections, merged_gate_up,
                 mlp_linears, qk_norm, norm_weight, post_norms, attention_scale, attention_softcap, logit_softcap,
                 embedding_scale, norm_names, q_norm_name, k_norm_name, pre_norms, centred_norms, norm_biases, head_bias,
                 parallel_blocks, residual_multiplier, logit_scale, query_scale, rotates, moe, latent, delta_net, mamba2,
                 tie_word_embeddings, mlp_block, embedding_layers, sliding_window, rotary, window_rotary] = spec;
    static_cast<void>(max_positions);
    const bool all_experts = moe && std::find(moe->layers.begin(), moe->layers.end(), false) == moe->layers.end();
    add("hidden", hidden), add("layers", layers), add("vocab", vocab), add("rms_norm_eps", rms_norm_eps);
    if (!all_experts || moe->layers.empty()) add("intermediate", intermediate);  // else no layer has an MLP
    add("heads", heads);
    if (!latent) add("kv_heads", kv_heads), add("head_dim", head_dim);
    add("hidden_act", hidden_act), add("qkv_bias", qkv_bias), add("output_bias", output_bias);
    add("attention_gate", attention_gate), add("attention_sinks", attention_sinks), add("sees_later", sees_later);
    add("mlp_bias", mlp_bias), add("merged_projections", merged_projections), add("merged_gate_up", merged_gate_up);
    add("mlp_linears", mlp_linears), add("qk_norm", qk_norm), add("norm_weight", norm_weight), add("pre_norms", pre_norms);
    add("post_norms", post_norms), add("centred_norms", centred_norms), add("norm_biases", norm_biases);
    add("head_bias", head_bias), add("parallel_blocks", parallel_blocks);
    add("attention_scale", attention_scale ? *attention_scale : 1 / std::sqrt(static_cast<float>(head_dim)));
    add("attention_softcap", attention_softcap), add("logit_softcap", logit_softcap), add("embedding_scale", embedding_scale);
    add("residual_multiplier", residual_multiplier), add("logit_scale", logit_scale), add("query_scale", query_scale);
    add("norm_names", norm_names), add("q_norm_name", q_norm_name), add("k_norm_name", k_norm_name), add("mlp_block", mlp_block);
    add("sliding_window", sliding_window), add("rotates", rotates.empty() ? std::vector<bool>(layers, true) : rotates);
    add("rotary", rotary), add("window_rotary", window_rotary), add("moe", moe), add("latent", latent);
    add("delta_net", delta_net), add("mamba2", mamba2), add("tie_word_embeddings", tie_word_embeddings);
    add("embedding_layers", embedding_layers);
  }
  void add(const Gemma4Spec& spec) {
    const auto& [decoder, windowed, full, kv_layers, keys_are_values, wide_shared_mlp, per_layer_width] = spec;
    auto of_no_layer = decoder;
    of_no_layer.head_dim = of_no_layer.kv_heads = 0;
    add(of_no_layer);
    add("windowed", windowed), add("full", full), add("kv_layers", kv_layers), add("keys_are_values", keys_are_values);
    add("wide_shared_mlp", wide_shared_mlp), add("per_layer_width", per_layer_width);
  }

  const Status& status() const { return status_; }

 private:
  template <class Add>
  void within(std::string_view name, Add add_all) {
    const size_t length = prefix_.size();
    prefix_ += fmt::format("{}.", name);
    add_all();
    prefix_.resize(length);
  }

  std::vector<ModelFact>& out_;
  std::string prefix_;
  Status status_;
};

bool same(const ModelFact& a, const ModelFact& b) {
  constexpr double kRelative = 0x1p-21, kNothing = 1e-20;  // of frequencies that do not turn
  if (a.text != b.text) return false;
  if (a.number == b.number || !std::isfinite(a.number) || !std::isfinite(b.number)) return a.number == b.number;
  return std::abs(a.number - b.number) <= kRelative * std::max(std::abs(a.number), std::abs(b.number)) + kNothing;
}

std::string value_of(const ModelFact& fact) { return fact.text.empty() ? fmt::format("{}", fact.number) : fact.text; }

}  // namespace

Result<std::vector<ModelFact>> facts_of(const ModelSpec& spec) {
  std::vector<ModelFact> out;
  Facts facts(out);
  std::visit([&](const auto* of) { facts.add(*of); }, spec);
  CHORAL_RETURN_IF_ERROR(facts.status());
  return out;
}

std::optional<ModelDifference> first_difference(std::span<const ModelFact> first, std::span<const ModelFact> second) {
  const auto has = [](std::span<const ModelFact> facts, const std::string& name) {
    return std::any_of(facts.begin(), facts.end(), [&](const ModelFact& fact) { return fact.name == name; });
  };
  size_t i = 0;
  while (i < std::min(first.size(), second.size()) && first[i].name == second[i].name && same(first[i], second[i])) ++i;
  const ModelFact* a = i < first.size() ? &first[i] : nullptr;
  const ModelFact* b = i < second.size() ? &second[i] : nullptr;
  if (a == nullptr && b == nullptr) return std::nullopt;
  if (a != nullptr && b != nullptr && a->name == b->name) return ModelDifference{a->name, value_of(*a), value_of(*b)};
  if (a != nullptr && !has(second, a->name)) return ModelDifference{a->name, value_of(*a), "absent"};
  return ModelDifference{b->name, "absent", value_of(*b)};
}

}  // namespace choral::models
