// Two models differ where one of their numbers does, and nowhere else.
#include "models/model_equations.h"

#include <gtest/gtest.h>

#include <functional>

#include "models/decoder.h"
#include "models/gemma4_model.h"

namespace choral::models {
namespace {

Gemma4Spec whole_spec() {
  Gemma4Spec spec;
  DecoderSpec& decoder = spec.decoder;
  decoder.hidden = 64, decoder.intermediate = 96, decoder.layers = 2, decoder.vocab = 100;
  decoder.heads = 4, decoder.kv_heads = 2, decoder.head_dim = 16;
  decoder.sliding_window = {8, 0};
  decoder.rotary = {.head_dim = 16, .rotary_dim = 16, .max_positions = 1};
  decoder.window_rotary = decoder.rotary;
  decoder.query_scale = kernels::PositionScale{.beta = 0.5, .period = 16};
  decoder.moe = MoeSpec{.experts = 4, .intermediate = 32, .shared_intermediate = 32};
  decoder.moe->swiglu = kernels::ClampedSwiglu();
  decoder.moe->gating.groups = 2;
  decoder.moe->layers = {false, true};
  decoder.delta_net = DeltaNetSpec{.layer = {}, .layers = {false, false}};
  decoder.mamba2 = Mamba2Spec{.layer = {}, .layers = {false, false}};
  decoder.embedding_layers = {{.prefix = "a", .in = 64, .out = 32}};
  spec.windowed = spec.full = {.head_dim = 16, .kv_heads = 2};
  return spec;
}

std::vector<ModelFact> facts(const ModelSpec& spec) {
  auto found = facts_of(spec);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : std::vector<ModelFact>();
}

TEST(ModelEquations, EachNumberCounts) {
  using Change = std::function<void(DecoderSpec&, Gemma4Spec&)>;
  const std::pair<const char*, Change> changes[] = {
      {"hidden", [](auto& d, auto&) { d.hidden = 65; }},
      {"layers", [](auto& d, auto&) { d.layers = 3; }},
      {"intermediate", [](auto& d, auto&) { d.intermediate = 97; }},
      {"rms_norm_eps", [](auto& d, auto&) { d.rms_norm_eps = 2e-6F; }},
      {"hidden_act", [](auto& d, auto&) { d.hidden_act = "gelu"; }},
      {"output_bias", [](auto& d, auto&) { d.output_bias = true; }},
      {"attention_gate", [](auto& d, auto&) { d.attention_gate = true; }},
      {"qk_norm", [](auto& d, auto&) { d.qk_norm = layers::QkNorm::kAllHeads; }},
      {"norm_biases", [](auto& d, auto&) { d.norm_biases = true; }},
      {"head_bias", [](auto& d, auto&) { d.head_bias = true; }},
      {"norm_weight", [](auto& d, auto&) { d.norm_weight = layers::NormWeight::kOnePlus; }},
      {"attention_scale", [](auto& d, auto&) { d.attention_scale = 0.3F; }},
      {"attention_softcap", [](auto& d, auto&) { d.attention_softcap = 1; }},
      {"logit_scale", [](auto& d, auto&) { d.logit_scale = 2; }},
      {"norm_names.mlp", [](auto& d, auto&) { d.norm_names.mlp = "other"; }},
      {"query_scale.beta", [](auto& d, auto&) { d.query_scale->beta = 0.25; }},
      {"query_scale.beta", [](auto& d, auto&) { d.query_scale.reset(); }},
      {"sliding_window.0", [](auto& d, auto&) { d.sliding_window[0] = 9; }},
      {"sliding_window.1", [](auto& d, auto&) { d.sliding_window[1] = 8; }},
      {"rotates.1",
       [](auto& d, auto&) {
         d.rotates = {true, false};
       }},
      {"rotary.short.frequency.1", [](auto& d, auto&) { d.rotary.theta = 10001; }},
      {"window_rotary.short.frequency.1", [](auto& d, auto&) { d.window_rotary->theta = 9999; }},
      {"rotary.interleaved", [](auto& d, auto&) { d.rotary.interleaved = true; }},
      {"moe.experts", [](auto& d, auto&) { d.moe->experts = 8; }},
      {"moe.gating.top_k", [](auto& d, auto&) { d.moe->gating.top_k = 2; }},
      {"moe.gating.renormalise", [](auto& d, auto&) { d.moe->gating.renormalise = true; }},
      {"moe.gating.routed_scaling", [](auto& d, auto&) { d.moe->gating.routed_scaling = 2.5F; }},
      {"moe.gating.jitter", [](auto& d, auto&) { d.moe->gating.jitter = 0.02F; }},
      {"moe.gating.group_score", [](auto& d, auto&) { d.moe->gating.group_score = kernels::GroupScore::kTopTwoSum; }},
      {"moe.swiglu.limit", [](auto& d, auto&) { d.moe->swiglu->limit = 6; }},
      {"moe.layers.1", [](auto& d, auto&) { d.moe->layers[1] = false; }},
      {"moe.names.down", [](auto& d, auto&) { d.moe->names.down = "w2"; }},
      {"moe.shared_gate", [](auto& d, auto&) { d.moe->shared_gate = true; }},
      {"delta_net.value_dim", [](auto& d, auto&) { d.delta_net->layer.value_dim = 1; }},
      {"delta_net.layers.0", [](auto& d, auto&) { d.delta_net->layers[0] = true; }},
      {"mamba2.most_step", [](auto& d, auto&) { d.mamba2->layer.most_step = 1; }},
      {"mamba2.layers.1", [](auto& d, auto&) { d.mamba2->layers[1] = true; }},
      {"tie_word_embeddings", [](auto& d, auto&) { d.tie_word_embeddings = true; }},
      {"embedding_layers.0.is_tanh", [](auto& d, auto&) { d.embedding_layers[0].is_tanh = true; }},
      {"windowed.head_dim", [](auto&, auto& g) { g.windowed.head_dim = 8; }},
      {"full.kv_heads", [](auto&, auto& g) { g.full.kv_heads = 1; }},
      {"keys_are_values", [](auto&, auto& g) { g.keys_are_values = true; }},
      {"per_layer_width", [](auto&, auto& g) { g.per_layer_width = 8; }},
  };
  const Gemma4Spec spec = whole_spec();
  const auto as_it_is = facts(&spec);
  EXPECT_FALSE(first_difference(as_it_is, facts(&spec)));
  for (const auto& [name, change] : changes) {
    Gemma4Spec changed = whole_spec();
    change(changed.decoder, changed);
    const auto difference = first_difference(as_it_is, facts(&changed));
    ASSERT_TRUE(difference) << name;
    EXPECT_EQ(difference->name, name);
    EXPECT_NE(difference->first, difference->second);
  }
}

// Of a plain decoder, whose heads are those of its layers.
TEST(ModelEquations, HeadsCount) {
  const DecoderSpec spec = whole_spec().decoder;
  for (const auto& [name, field] : {std::pair("kv_heads", &DecoderSpec::kv_heads), std::pair("heads", &DecoderSpec::heads),
                                    std::pair("head_dim", &DecoderSpec::head_dim), std::pair("vocab", &DecoderSpec::vocab)}) {
    DecoderSpec changed = spec;
    changed.*field += 1;
    const auto difference = first_difference(facts(&spec), facts(&changed));
    ASSERT_TRUE(difference);
    EXPECT_EQ(difference->name, name);
  }
}

TEST(ModelEquations, LatentsCount) {
  DecoderSpec spec = whole_spec().decoder;
  spec.latent = LatentSpec{.q_rank = 8, .kv_rank = 16, .nope_dim = 4, .rope_dim = 4, .value_dim = 8};
  DecoderSpec changed = spec;
  changed.kv_heads = 1;  // which latents take the place of
  EXPECT_FALSE(first_difference(facts(&spec), facts(&changed)));
  changed.latent->value_dim = 4;
  EXPECT_EQ(first_difference(facts(&spec), facts(&changed))->name, "latent.value_dim");
}

TEST(ModelEquations, FormsOfOneRotationAreOne) {
  DecoderSpec scaled = whole_spec().decoder, divided = scaled;
  scaled.rotary.scaling = kernels::RotaryScaling::kLinear;
  scaled.rotary.factor = 3;
  divided.rotary.frequency_divisors.assign(8, 3.0F);
  EXPECT_FALSE(first_difference(facts(&scaled), facts(&divided)));
  divided.rotary.frequency_divisors[7] = 3.001F;
  EXPECT_EQ(first_difference(facts(&scaled), facts(&divided))->name, "rotary.short.frequency.7");

  // A pair that does not turn, and one that turns by too little to be seen.
  divided.rotary.frequency_divisors[7] = 1e30F;
  DecoderSpec unturned = divided;
  unturned.rotary.frequency_divisors[7] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(first_difference(facts(&unturned), facts(&divided)));
}

TEST(ModelEquations, LongTextsFrequenciesCountToo) {
  DecoderSpec spec = whole_spec().decoder;
  spec.rotary.scaling = kernels::RotaryScaling::kLongRope;
  spec.rotary.original_max_position = 64;
  spec.rotary.short_factors.assign(8, 1.0F);
  spec.rotary.long_factors.assign(8, 2.0F);
  DecoderSpec other = spec;
  other.rotary.long_factors[3] = 2.5F;
  EXPECT_EQ(first_difference(facts(&spec), facts(&other))->name, "rotary.long.frequency.3");
}

}  // namespace
}  // namespace choral::models
