#include "requests/indexed_map.h"

#include <gtest/gtest.h>

#include <string>

namespace choral::requests {
namespace {

using Json = nlohmann::basic_json<IndexedMap>;

TEST(IndexedMap, ReadsAsTheOrderedMapDoes) {
  std::string text = "{";
  for (int i = 0; i < 200; ++i) text += "\"k" + std::to_string(i * 37 % 90) + "\":{\"i\":" + std::to_string(i) + "},";
  text += "\"last\":[{\"b\":1,\"a\":2,\"b\":3}]}";
  EXPECT_EQ(Json::parse(text).dump(), nlohmann::ordered_json::parse(text).dump());
  Json copy = Json::parse(text);
  copy = Json(copy);
  EXPECT_EQ(copy.dump(), nlohmann::ordered_json::parse(text).dump());
}

// Work is counted, not timed.
struct CountedKey {
  std::string text;
  static int64_t comparisons;
  friend bool operator==(const CountedKey& a, const CountedKey& b) { return ++comparisons, a.text == b.text; }
  friend bool operator<(const CountedKey& a, const CountedKey& b) { return ++comparisons, a.text < b.text; }
};
int64_t CountedKey::comparisons = 0;

TEST(IndexedMap, ManyKeysTakeFewComparisonsEach) {
  constexpr int kKeys = 100'000;
  IndexedMap<CountedKey, int> map;
  for (int i = 0; i < kKeys; ++i) map[{"key" + std::to_string(i)}] = i;
  for (int i = 0; i < kKeys; i += 2) map[{"key" + std::to_string(i)}] = -i;
  ASSERT_EQ(map.size(), size_t{kKeys});
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_EQ(map.begin()[i].first.text, "key" + std::to_string(i));
    ASSERT_EQ(map.begin()[i].second, i % 2 == 0 ? -i : i);
  }
  EXPECT_LT(CountedKey::comparisons, int64_t{kKeys} * 100);
}

}  // namespace
}  // namespace choral::requests
