#include "serve/openai/system_fingerprint.h"

#include <gmock/gmock.h>

#include <set>

namespace choral::serve {
namespace {

TEST(SystemFingerprint, IsAnotherForWhateverChangesBits) {
  ModelInfo model;
  model.name = "tiny";
  model.digest = "0a";
  model.cpu_level = "avx2";
  model.kv_cache_dtype = "float32";
  model.layers = {
      {.layers = "model.layers.*.mlp.down_proj", .count = 2, .scheme = "bf16", .kernel = "bf16, avx2", .why = "stored"}};
  std::set<std::string> all{system_fingerprint(model)};
  EXPECT_THAT(*all.begin(), ::testing::MatchesRegex("fp_[0-9a-f]{10}"));
  auto same = model;
  same.path = "/elsewhere";
  same.name = "another name";
  same.threads = 7;
  same.kv_cache_bytes = 1;
  same.layers[0].why = "--dtype";
  EXPECT_EQ(system_fingerprint(same), *all.begin());
  const auto changed = [&](auto change) {
    auto other = model;
    change(other);
    EXPECT_TRUE(all.insert(system_fingerprint(other)).second);
  };
  changed([](ModelInfo& m) { m.digest = "0b"; });
  changed([](ModelInfo& m) { m.parameters = 1; });
  changed([](ModelInfo& m) { m.cpu_level = "avx512"; });
  changed([](ModelInfo& m) { m.kv_cache_dtype = "int8"; });
  changed([](ModelInfo& m) { m.layers[0].scheme = "W8A8_DYNAMIC"; });
}

}  // namespace
}  // namespace choral::serve
