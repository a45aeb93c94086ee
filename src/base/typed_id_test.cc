#include "base/typed_id.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_map>

namespace choral {
namespace {

using CatId = TypedId<struct CatTag>;
using DogId = TypedId<struct DogTag>;

static_assert(!std::is_convertible_v<CatId, DogId> && !std::is_constructible_v<CatId, DogId>);
static_assert(!std::is_assignable_v<CatId&, DogId> && !std::is_assignable_v<CatId&, int>);
static_assert(!std::is_convertible_v<int, CatId> && !std::is_convertible_v<CatId, int>);
static_assert(sizeof(CatId) == sizeof(int32_t) && std::is_trivially_copyable_v<CatId>);
static_assert(CatId{} == CatId{0} && CatId{1} != CatId{2} && CatId{-1} < CatId{1});

TEST(TypedId, IsAKeyByItsNumber) {
  std::unordered_map<CatId, int> cats;
  for (const int32_t value : {3, -3, 3}) ++cats[CatId{value}];
  EXPECT_EQ(cats.size(), 2u);
  EXPECT_EQ(cats.at(CatId{3}), 2);
  EXPECT_EQ(CatId{7}.value(), 7);
}

}  // namespace
}  // namespace choral
