// Latent attention as it is computed, absorbed, against its definition: keys and values made of every latent, in plain loops of
// doubles. With adapters on kv_b_proj, whose weight there is W + ΔW.
#include "layers/latent_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "lora/store/built_adapter_test.h"
#include "platform/cpu_context_test.h"
#include "quant/rounded_weight.h"
#include "quant/weights_test.h"

namespace choral::layers {
namespace {

using Matrix = std::vector<double>;

constexpr int64_t kHidden = 24, kHeads = 3, kLatent = 20, kNope = 6, kRope = 4, kValue = 5, kRank = 3;
constexpr int64_t kHeadRows = kNope + kValue, kRows = kHeads * kHeadRows, kQuery = kNope + kRope;
constexpr float kScale = 0.4F;
const std::string kPrefix = "model.layers.0.self_attn", kTarget = kPrefix + ".kv_b_proj";

std::vector<float> values(int64_t count, float size, float step) {
  std::vector<float> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(size * std::sin(step * static_cast<float>(i + 1)));
  return out;
}

const std::vector<float> kQ = values(kHeads * kQuery * kHidden, 0.5F, 0.7F),
                         kKvA = values((kLatent + kRope) * kHidden, 0.5F, 1.1F), kNorm = values(kLatent, 1.5F, 0.9F),
                         kKvB = values(kRows * kLatent, 0.4F, 1.7F), kO = values(kHidden * kHeads * kValue, 0.5F, 2.3F);

// What an adapter's files say of kv_b_proj, and the ΔW and Δb that they mean.
struct Adapter {
  std::vector<float> a, b, magnitude = {}, bias = {};
  static constexpr float kAlphaOverR = 2;

  Matrix delta(const Matrix& w) const {
    Matrix out(kRows * kLatent);
    for (int64_t r = 0; r < kRows; ++r) {
      double length = 0;
      for (int64_t c = 0; c < kLatent; ++c) {
        double change = 0;
        for (int64_t j = 0; j < kRank; ++j) change += static_cast<double>(b[r * kRank + j]) * a[j * kLatent + c];
        out[r * kLatent + c] = w[r * kLatent + c] + kAlphaOverR * change;
        length += out[r * kLatent + c] * out[r * kLatent + c];
      }
      const double factor = magnitude.empty() ? 1 : magnitude[r] / std::sqrt(length);
      for (int64_t c = 0; c < kLatent; ++c) out[r * kLatent + c] = factor * out[r * kLatent + c] - w[r * kLatent + c];
    }
    return out;
  }

  std::shared_ptr<const lora::PackedAdapter> packed(const platform::Context& ctx,
                                                    std::span<const lora::LoRATarget> targets) const {
    lora::testing::AdapterBuilder files;
    files.pair(kTarget, kRank, kLatent, kRows);
    files.at(kTarget + ".lora_A.weight").values = a;
    files.at(kTarget + ".lora_B.weight").values = b;
    std::string more;
    const auto add = [&](const std::string& tensor, const std::vector<float>& stored, std::string_view key) {
      if (stored.empty()) return;
      files.add("base_model.model." + kTarget + tensor, {kRows});
      files.at(kTarget + tensor).values = stored;
      more += fmt::format(R"(,"{}":true)", key);
    };
    add(".lora_magnitude_vector", magnitude, "use_dora");
    add(".lora_B.bias", bias, "lora_bias");
    const choral::testing::TempDir folder;
    const auto config = fmt::format(R"({{"peft_type":"LORA","r":{},"lora_alpha":{},"target_modules":["kv_b_proj"]{}}})", kRank,
                                    kRank * kAlphaOverR, more);
    const auto model = lora::testing::load(folder.path(), files, config, {}, {targets.begin(), targets.end()});
    CHORAL_CHECK(model.ok(), model.status().message());
    auto made = lora::PackedAdapter::pack(ctx, *model, targets, {});
    CHORAL_CHECK(made.ok(), made.status().message());
    return std::move(*made);
  }
};

struct Term {
  const Adapter* adapter;
  float factor;
};

class LatentAttentionTest : public ::testing::Test {
 protected:
  struct Sequence {
    int64_t tokens;
    std::vector<Term> terms = {};
    std::vector<float> x = {};
    lora::PackedVoice voice = {};
  };

  // kv_b_proj is stored as floats, or as FP8.
  void load(bool in_fp8 = false) {
    class Schemes : public quant::QuantConfig {
     public:
      explicit Schemes(quant::SchemePtr absorbed) : absorbed_(std::move(absorbed)) {}
      Result<quant::LayerScheme> scheme_for(quant::LayerKind kind, std::string_view) const override {
        return quant::LayerScheme{kind == quant::LayerKind::kAbsorbed ? absorbed_ : quant::float_scheme(), "a test"};
      }

     private:
      quant::SchemePtr absorbed_;
    };
    config_ = std::make_unique<Schemes>(in_fp8 ? quant::fp8_scheme({}) : quant::float_scheme());
    builder_.emplace(Builder{cpu_.session(), *config_, ops_, overrides_});
    rotary_ = std::make_unique<RotaryEmbedding>(
        *builder_, kernels::RotaryParams{.head_dim = kRope, .rotary_dim = kRope, .max_positions = 128, .interleaved = true});
    layer_ = std::make_unique<LatentAttention>(*builder_, LatentAttention::Spec{.prefix = kPrefix,
                                                                                .hidden = kHidden,
                                                                                .heads = kHeads,
                                                                                .kv_rank = kLatent,
                                                                                .nope_dim = kNope,
                                                                                .rope_dim = kRope,
                                                                                .value_dim = kValue,
                                                                                .scale = kScale,
                                                                                .rotary = rotary_.get()});
    ASSERT_TRUE(builder_->status.ok()) << builder_->status.message();
    quant::testing::StoredWeights weights;
    const auto add = [&](const std::string& name, Shape shape, const std::vector<float>& stored) {
      weights.add(fmt::format("{}.{}.weight", kPrefix, name), DType::kF32, shape, stored);
    };
    add("q_proj", {kHeads * kQuery, kHidden}, kQ);
    add("kv_a_proj_with_mqa", {kLatent + kRope, kHidden}, kKvA);
    add("kv_a_layernorm", {kLatent}, kNorm);
    const TensorView kv_b{std::as_bytes(std::span(kKvB)).data(), DType::kF32, {kRows, kLatent}, kCpuDevice};
    const auto codes = *quant::round_to_fp8((*cpu_).kernel, kv_b, kTarget);
    if (in_fp8) {
      weights.add(kTarget + ".weight", codes.codes.view());
      weights.add(kTarget + ".weight_scale", DType::kF32, {kRows, 1}, codes.scales);
    } else {
      weights.add(kTarget + ".weight", kv_b);
    }
    add("o_proj", {kHidden, kHeads * kValue}, kO);
    for (Module* module : builder_->modules) {
      ASSERT_TRUE(module->load_weights(weights).ok());
      const Status packed = module->process_weights_after_loading(*cpu_, weights);
      ASSERT_TRUE(packed.ok()) << packed.message();
    }
    const auto shape = layer_->kv_shape();
    keys_ = *AlignedBuffer::allocate(kernels::kv_key_block_bytes(DType::kF32, shape.kv_heads, shape.key_dim) * kBlocksEach *
                                     kMostSequences);
    layer_->bind_kv_cache({.cache = {.keys = keys_.data(),
                                     .dtype = DType::kF32,
                                     .num_blocks = kBlocksEach * kMostSequences,
                                     .kv_heads = shape.kv_heads,
                                     .head_dim = shape.key_dim,
                                     .v_head_dim = shape.value_dim}});
  }

  // W as the layer says that it computes with it.
  Matrix weight() const {
    Matrix w;
    for (const auto& target : builder_->lora_targets) {
      for (int64_t row = 0; target.name == kTarget && row < kRows; ++row) {
        std::vector<float> one(kLatent);
        EXPECT_TRUE(target.base_row(row, one).ok());
        w.insert(w.end(), one.begin(), one.end());
      }
    }
    return w;
  }

  void add_sequence(int64_t tokens, std::vector<Term> terms = {}) {
    Sequence s{tokens, std::move(terms)};
    s.x = values(tokens * kHidden, 1, 0.31F + 0.17F * static_cast<float>(sequences_.size()));
    for (const auto& [adapter, factor] : s.terms) s.voice.push_back({adapter->packed(*cpu_, builder_->lora_targets), factor});
    out_.resize(sequences_.size() + 1);
    out_.back().resize(tokens * kHidden);
    sequences_.push_back(std::move(s));
  }

  // Computes tokens [done, done + at most `chunk`) of each sequence that has any, all in one step.
  void step(int64_t done, int64_t chunk) {
    std::vector<float> x;
    std::vector<int32_t> positions;
    std::vector<int64_t> slots;
    std::vector<kernels::AttentionSequence> sequences;
    std::vector<lora::LoRASegment> segments;
    std::vector<const lora::PackedVoice*> voices;
    std::vector<std::vector<int32_t>> tables;
    tables.reserve(sequences_.size());
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const auto& sequence = sequences_[s];
      const int64_t count = std::min(chunk, sequence.tokens - done), row = std::ssize(positions);
      tables.emplace_back();
      for (int64_t b = 0; b < kBlocksEach; ++b)
        tables.back().push_back(static_cast<int32_t>(s * kBlocksEach + kBlocksEach - 1 - b));
      if (count <= 0) continue;
      x.insert(x.end(), sequence.x.begin() + done * kHidden, sequence.x.begin() + (done + count) * kHidden);
      for (int64_t p = done; p < done + count; ++p) {
        positions.push_back(static_cast<int32_t>(p));
        slots.push_back(tables.back()[p / kernels::kKvBlockTokens] * kernels::kKvBlockTokens + p % kernels::kKvBlockTokens);
      }
      sequences.push_back({row, count, done, tables.back()});
      if (sequence.voice.empty()) continue;
      segments.push_back({row, count, lora::AdapterKey{static_cast<int>(s) + 1}});
      voices.push_back(&sequence.voice);
    }
    lora::PunicaWrapper punica(kMostSequences);
    punica.update_metadata(segments, voices);
    const auto rows = std::ssize(positions);
    std::vector<float> y(rows * kHidden);
    const auto& ctx = *cpu_;
    const KvRows kv_rows{place_indices(ctx, std::span<const int64_t>(slots)), ctx.session.place_sequences(sequences)};
    const ForwardBatch batch{.token_ids = place_indices(ctx, std::span<const int32_t>(positions)),
                             .positions = place_indices(ctx, std::span<const int32_t>(positions)),
                             .kv_groups = {&kv_rows, 1},
                             .lora = segments.empty() ? nullptr : &punica};
    layer_->forward(ctx, batch, {x.data(), rows, kHidden}, /*add=*/false, {y.data(), rows, kHidden});
    const float* from = y.data();
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const int64_t count = std::min(chunk, sequences_[s].tokens - done);
      if (count <= 0) continue;
      std::copy_n(from, count * kHidden, out_[s].begin() + done * kHidden);
      from += count * kHidden;
    }
  }
  std::vector<std::vector<float>> run(int64_t chunk = kMostTokens) {
    for (int64_t done = 0; done < kMostTokens; done += chunk) step(done, chunk);
    return out_;
  }

  // The definition, expanded.
  std::vector<float> expected(const Sequence& s, const Matrix& base) const;

  static constexpr int64_t kBlocksEach = 2, kMostSequences = 8, kMostTokens = 40;

  platform::testing::CpuContext cpu_;
  const platform::CustomOpConfig ops_;
  const platform::LayerOverrides overrides_;
  std::unique_ptr<quant::QuantConfig> config_;
  std::optional<Builder> builder_;
  std::unique_ptr<RotaryEmbedding> rotary_;
  std::unique_ptr<LatentAttention> layer_;
  AlignedBuffer keys_;
  std::vector<Sequence> sequences_;
  std::vector<std::vector<float>> out_;
};

Matrix multiply(const std::vector<float>& w, int64_t out, int64_t in, const double* x) {
  Matrix y(out);
  for (int64_t r = 0; r < out; ++r) {
    for (int64_t c = 0; c < in; ++c) y[r] += static_cast<double>(w[r * in + c]) * x[c];
  }
  return y;
}

std::vector<float> LatentAttentionTest::expected(const Sequence& s, const Matrix& base) const {
  Matrix w = base, bias(kRows);
  for (const auto& [adapter, factor] : s.terms) {
    const Matrix delta = adapter->delta(base);
    for (size_t i = 0; i < w.size(); ++i) w[i] += factor * delta[i];
    for (size_t i = 0; i < adapter->bias.size(); ++i) bias[i] += factor * Adapter::kAlphaOverR * adapter->bias[i];
  }
  const auto turn = [&](double* part, int64_t position) {  // interleaved pairs
    const auto& table = rotary_->placed().table;
    for (int64_t i = 0; i < kRope / 2; ++i) {
      const double cos = table.cos_row(position)[i], sin = table.sin_row(position)[i], a = part[2 * i], b = part[2 * i + 1];
      part[2 * i] = a * cos - b * sin;
      part[2 * i + 1] = b * cos + a * sin;
    }
  };
  std::vector<Matrix> keys, vs;  // [head][dim] of each token
  std::vector<float> out;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const Matrix x(s.x.begin() + t * kHidden, s.x.begin() + (t + 1) * kHidden);
    Matrix q = multiply(kQ, kHeads * kQuery, kHidden, x.data()), kv = multiply(kKvA, kLatent + kRope, kHidden, x.data());
    double square = 0;
    for (int64_t c = 0; c < kLatent; ++c) square += kv[c] * kv[c];
    for (int64_t c = 0; c < kLatent; ++c) kv[c] *= kNorm[c] / std::sqrt(square / kLatent + 1e-6);
    turn(&kv[kLatent], t);
    Matrix key, value;
    for (int64_t h = 0; h < kHeads; ++h) {
      turn(&q[h * kQuery + kNope], t);
      for (int64_t r = 0; r < kHeadRows; ++r) {
        double product = bias[h * kHeadRows + r];
        for (int64_t c = 0; c < kLatent; ++c) product += w[(h * kHeadRows + r) * kLatent + c] * kv[c];
        (r < kNope ? key : value).push_back(product);
      }
      key.insert(key.end(), kv.begin() + kLatent, kv.end());
    }
    keys.push_back(key), vs.push_back(value);
    Matrix seen(kHeads * kValue);
    for (int64_t h = 0; h < kHeads; ++h) {
      double sum = 0;
      for (int64_t j = 0; j <= t; ++j) {
        double score = 0;
        for (int64_t i = 0; i < kQuery; ++i) score += q[h * kQuery + i] * keys[j][h * kQuery + i];
        const double weight = std::exp(kScale * score);
        sum += weight;
        for (int64_t i = 0; i < kValue; ++i) seen[h * kValue + i] += weight * vs[j][h * kValue + i];
      }
      for (int64_t i = 0; i < kValue; ++i) seen[h * kValue + i] /= sum;
    }
    for (const double y : multiply(kO, kHidden, kHeads * kValue, seen.data())) out.push_back(static_cast<float>(y));
  }
  return out;
}

const Adapter kLora{.a = values(kRank * kLatent, 0.5F, 1.3F), .b = values(kRows * kRank, 0.4F, 2.9F)};
const Adapter kDora{.a = values(kRank * kLatent, 0.5F, 0.6F), .b = values(kRows * kRank, 0.4F, 1.9F), .magnitude = [] {
                      auto m = values(kRows, 0.5F, 3.1F);
                      for (float& v : m) v += 1.2F;
                      return m;
                    }()};
const Adapter kBiased{.a = kDora.a, .b = kLora.b, .bias = values(kRows, 0.7F, 0.8F)};

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], wanted[i], 2e-5) << "token " << i / kHidden << ", element " << i % kHidden;
  }
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST_F(LatentAttentionTest, KeepsOneLatentATokenForAllHeads) {
  load();
  const auto shape = layer_->kv_shape();
  EXPECT_EQ(shape.kv_heads * (shape.key_dim + shape.stored_value_dim()), kLatent + kRope);
  EXPECT_EQ(shape.value_dim, kLatent);
}

TEST_F(LatentAttentionTest, EqualsKeysAndValuesMadeOfEveryLatent) {
  load();
  add_sequence(37);
  add_sequence(33, {{&kLora, 1}});
  add_sequence(5, {{&kDora, 1}});
  add_sequence(12, {{&kBiased, 1}});
  add_sequence(36, {{&kLora, 0.5F}, {&kDora, -0.75F}});
  add_sequence(9);
  const auto whole = run();
  const Matrix w = weight();
  std::vector<float> base;
  for (size_t s = 0; s < sequences_.size(); ++s) {
    SCOPED_TRACE(fmt::format("sequence {}", s));
    expect_near(whole[s], expected(sequences_[s], w));
    if (sequences_[s].terms.empty()) continue;
    Sequence without = sequences_[s];
    without.terms.clear();
    const auto unadapted = expected(without, w);
    double effect = 0;
    for (size_t i = 0; i < unadapted.size(); ++i) effect = std::max<double>(effect, std::abs(unadapted[i] - whole[s][i]));
    EXPECT_GT(effect, 0.05) << "the adapter does nothing to speak of";
  }
  for (const int64_t chunk : {1, 7, 32}) {
    const auto pieces = run(chunk);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      SCOPED_TRACE(fmt::format("sequence {}, chunks of {}", s, chunk));
      expect_same_bits(pieces[s], whole[s]);
    }
  }
}

TEST_F(LatentAttentionTest, RowsOfTheBaseAreThoseOfAServerWithoutAdapters) {
  load();
  add_sequence(37);
  const auto alone = run();
  add_sequence(20, {{&kDora, 1}});
  add_sequence(20, {{&kLora, 1}});
  expect_same_bits(run()[0], alone[0]);
}

// A quantised weight becomes floats once, and adapters are measured against these.
TEST_F(LatentAttentionTest, CodesBecomeTheFloatsTheyStandFor) {
  load(/*in_fp8=*/true);
  add_sequence(30);
  add_sequence(30, {{&kDora, 1}});
  const auto out = run();
  const Matrix w = weight();
  ASSERT_EQ(w.size(), kKvB.size());
  for (size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(w[i], kKvB[i], 0x1p-4 * std::abs(kKvB[i]) + 0.4 * 0x1p-10);
  for (size_t s = 0; s < sequences_.size(); ++s) expect_near(out[s], expected(sequences_[s], w));
  for (const Module* module : builder_->modules) {
    if (module->prefix() != kTarget) continue;
    EXPECT_EQ(module->format(), "f16");
    EXPECT_THAT(module->product_form(cpu_level())->why, ::testing::HasSubstr("absorbed"));
    EXPECT_LE(module->weight_bytes(), kHeads * (32 * kNope + 16 * kLatent) * 2) << "held once, padded to panels of 16";
  }
}

TEST_F(LatentAttentionTest, WhatCannotBeAbsorbedIsRefusedByName) {
  load();
  const auto& targets = builder_->lora_targets;
  const auto refusal = [&](const lora::testing::AdapterBuilder& files, std::string_view more) {
    return lora::testing::refusal(files, lora::testing::config_json(more, R"(["kv_b_proj"])"), {},
                                  {targets.begin(), targets.end()});
  };
  lora::testing::AdapterBuilder pair, saved;
  pair.pair(kTarget, 2, kLatent, kRows);
  EXPECT_EQ(refusal(pair, ""), "accepted");
  EXPECT_THAT(refusal(pair, R"(,"alora_invocation_tokens":[3])"),
              ::testing::AllOf(::testing::HasSubstr("alora_invocation_tokens"), ::testing::HasSubstr(kTarget)));
  saved.add("base_model.model." + kTarget + ".weight", {kRows, kLatent});
  EXPECT_THAT(refusal(saved, R"(,"modules_to_save":["kv_b_proj"])"), ::testing::HasSubstr(kTarget));
}

}  // namespace
}  // namespace choral::layers
