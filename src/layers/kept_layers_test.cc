// Layers in every scheme that were kept, and found again: the bits of the layers that were packed, without a look at their
// weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/gemm/kept_matrix.h"
#include "layers/every_scheme_test.h"
#include "platform/cpu_context_test.h"
#include "quant/packed_layers.h"

namespace choral::layers {
namespace {

constexpr int64_t kIn = 96, kRows = 40, kTokens = 3;

struct LoadedLayer {
  quant::LinearShape shape{.in = kIn, .out = {kRows}, .shard_names = {"l"}};
  std::unique_ptr<quant::LinearMethod> method;
  Status status;

  // Over tensors that end with this call.
  LoadedLayer(const platform::Context& ctx, const NamedScheme& scheme, quant::PackedLayers* kept, bool scrambled = false)
      : method(*scheme.config->get_quant_method(quant::LayerKind::kLinear, shape)) {
    SchemeWeights weights("l", kRows, kIn, scheme.stored_integers, scrambled ? 0.3f : 0.7f);
    quant::ParameterSet parameters;
    method->create_weights(shape, parameters);
    CHORAL_CHECK(parameters.weight_loader(weights.source).ok(), "the tensors are there");
    status = method->process_weights_after_loading(ctx, weights.source.request(), shape, parameters, kept);
  }

  std::vector<float> outputs(const platform::Context& ctx) const {
    auto x = waves(kTokens * kIn, 2, 0.37f);
    std::vector<float> y(kTokens * kRows);
    method->apply(ctx, {x.data(), kTokens, kIn}, {}, {y.data(), kTokens, kRows});
    return y;
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(KeptLayers, AreTheLayersThatWerePacked) {
  platform::testing::CpuContext cpu;
  for (const auto& scheme : every_scheme()) {
    SCOPED_TRACE(scheme.name);
    quant::PackedLayers keeper;
    const LoadedLayer packed(*cpu, scheme, &keeper);
    ASSERT_TRUE(packed.status.ok()) << packed.status.message();
    EXPECT_FALSE(keeper.sections().empty());
    EXPECT_GE(keeper.kept_bytes(), packed.method->size_bytes());

    quant::PackedLayers found(keeper.sections(), nullptr);
    const LoadedLayer again(*cpu, scheme, &found, /*scrambled=*/true);
    ASSERT_TRUE(again.status.ok()) << again.status.message();
    EXPECT_TRUE(found.fault().ok());
    EXPECT_EQ(found.taken_bytes(), packed.method->size_bytes());
    EXPECT_TRUE(same_bits(again.outputs(*cpu), packed.outputs(*cpu)));
    EXPECT_EQ(again.method->format(), packed.method->format());
    EXPECT_EQ(again.method->scheme(), packed.method->scheme());
    EXPECT_EQ(again.method->kernel_name(cpu_level()), packed.method->kernel_name(cpu_level()));
  }
}

TEST(KeptLayers, OneThatIsAnotherIsPacked) {
  platform::testing::CpuContext cpu;
  const auto schemes = every_scheme();
  quant::PackedLayers keeper;
  const LoadedLayer packed(*cpu, schemes[0], &keeper);
  auto sections = std::vector<io::Section>(keeper.sections().begin(), keeper.sections().end());
  sections.front().name += " 2";
  quant::PackedLayers found(sections, nullptr);
  const LoadedLayer again(*cpu, schemes[0], &found, /*scrambled=*/true);
  EXPECT_TRUE(found.fault().ok());
  EXPECT_EQ(found.taken_bytes(), 0);
  EXPECT_FALSE(same_bits(again.outputs(*cpu), packed.outputs(*cpu)));
}

TEST(KeptLayers, SectionsThatContradictThemselvesAreNotTaken) {
  platform::testing::CpuContext cpu;
  for (const auto& scheme : every_scheme()) {
    SCOPED_TRACE(scheme.name);
    quant::PackedLayers keeper;
    const LoadedLayer packed(*cpu, scheme, &keeper);
    const auto expect_fault = [&](auto change) {
      auto sections = std::vector<io::Section>(keeper.sections().begin(), keeper.sections().end());
      change(sections);
      quant::PackedLayers found(sections, nullptr);
      const LoadedLayer again(*cpu, scheme, &found);
      EXPECT_FALSE(found.fault().ok());
      EXPECT_EQ(found.taken_bytes(), 0);
      ASSERT_TRUE(again.status.ok());
      EXPECT_TRUE(same_bits(again.outputs(*cpu), packed.outputs(*cpu)));
    };
    using Sections = std::vector<io::Section>;
    expect_fault([](Sections& s) { s.resize(1); });
    expect_fault([](Sections& s) { s[0].facts = {1}; });
    expect_fault([](Sections& s) { s[0].facts = {}; });
    expect_fault([](Sections& s) { s[1].facts[0] = 7; });
    expect_fault([](Sections& s) { s[1].facts.pop_back(); });
    expect_fault([](Sections& s) { s[1].facts[1] = 16; });   // where its rows begin
    expect_fault([](Sections& s) { s[1].facts[2] = 300; });  // kind
    expect_fault([](Sections& s) { s[1].facts[3] += 1; });   // rows, of the same number of panels
    expect_fault([](Sections& s) { s[1].text = std::string(100, 'x'); });
    expect_fault([](Sections& s) { s[1].bytes = s[1].bytes.first(s[1].bytes.size() - 1); });
    expect_fault([](Sections& s) { s.push_back(s[1]); });
  }
}

}  // namespace
}  // namespace choral::layers
