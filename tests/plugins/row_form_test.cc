// Invariant 1 on a device whose fused operators round elsewhere than their parts: a row meets the same operators, and so gives
// the same bits, alone and beside rows whose adapter brings norms of its own.
#include "plugins/plugin_adapters.h"
#include "plugins/plugin_engine.h"

namespace choral::plugins {
namespace {

class RowFormTest : public PluginTest {
 protected:
  static EngineOptions on_device(const std::string& fuse = "all") {
    auto wish = options("ref_device");
    wish.fuse = fuse;
    wish.enable_prefix_caching = false;
    return wish;
  }
  static Request ask(int length, const std::string& adapter = "") {
    auto request = engine::greedy_request(engine::random_prompt(length, static_cast<uint32_t>(length)), 8);
    if (!adapter.empty()) request.adapters = {{adapter}};
    return request;
  }
  static bool same_bits(const RequestOutput& a, const RequestOutput& b) {
    const auto &x = a.completions.at(0).logprobs, &y = b.completions.at(0).logprobs;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& p, const auto& q) { return std::memcmp(&p.chosen, &q.chosen, sizeof p.chosen) == 0; });
  }

  const Variable fused_{"CHORAL_REF_FUSED", std::string(CHORAL_TEST_PLUGINS) + "/libchoral_ref_fused_other_bits.so"};
};

TEST_F(RowFormTest, TheFusedFormHasBitsOfItsOwn) {
  const auto fused = load(on_device()), parts = load(on_device("none"));
  EXPECT_FALSE(same_bits(fused->generate({ask(40)}).front(), parts->generate({ask(40)}).front()))
      << "else the tests below could not fail";
}

TEST_F(RowFormTest, ARowGivesTheSameBitsBesideANormReplacingAdapter) {
  const testing::TempDir folder;
  auto wish = on_device();
  wish.adapters = {{"blocks", write_norms(folder, "blocks", {"input_layernorm", "post_attention_layernorm"})},
                   {"heads", write_norms(folder, "heads", {"q_norm"})},  // and the base's k_norm
                   {"all", write_norms(folder, "all", {"input_layernorm", "post_attention_layernorm", "q_norm", "k_norm"})}};
  const auto llm = load(wish);
  std::vector<Request> requests;
  for (const char* adapter : {"", "blocks", "heads", "all"}) {
    for (const int length : {3, 40}) requests.push_back(ask(length, adapter));
  }
  const auto together = llm->generate(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    engine::expect_same_bits(llm->generate({requests[i]}).front(), together[i]);
  }
  for (size_t i = 2; i < requests.size(); ++i)
    EXPECT_FALSE(same_bits(together[i], together[i % 2])) << "adapter of request " << i;
  const auto without = load(on_device());
  for (size_t i = 0; i < 2; ++i) engine::expect_same_bits(without->generate({requests[i]}).front(), together[i]);
}

}  // namespace
}  // namespace choral::plugins
