#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/arena.h"
#include "base/checked_math.h"
#include "base/out_of_memory.h"

namespace choral {
namespace {

TEST(AlignedBuffer, IsZeroedAndAligned) {
  const auto buffer = AlignedBuffer::allocate(1000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % kCacheLineBytes, 0u);
  for (const uint8_t byte : buffer->as<const uint8_t>()) ASSERT_EQ(byte, 0);
}

TEST(AlignedBuffer, TooMuchIsAnError) {
  EXPECT_FALSE(AlignedBuffer::allocate(std::numeric_limits<size_t>::max()).ok());
  EXPECT_EQ(AlignedBuffer::allocate(size_t{1} << 60).status().code(), Code::kResourceExhausted);
}

TEST(Arena, SpansDoNotOverlapAndSurviveGrowth) {
  Arena arena;
  const auto a = arena.make<int>(1000);
  const auto b = arena.make<int>(10'000'000);  // needs another block
  std::fill(a.begin(), a.end(), 1);
  std::fill(b.begin(), b.end(), 2);
  EXPECT_EQ(a[999], 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % 64, 0u);
}

TEST(Arena, SteadyStateDoesNotGrow) {
  Arena arena;
  for (int round = 0; round < 3; ++round) {
    arena.reset();
    arena.make<float>(500'000);
    arena.make<float>(900'000);
  }
  const auto grown = arena.grown();
  for (int round = 0; round < 10; ++round) {
    arena.reset();
    arena.make<float>(500'000);
    arena.make<float>(900'000);
  }
  EXPECT_EQ(arena.grown(), grown);
}

TEST(Arena, MarkGivesBack) {
  Arena arena;
  arena.make<float>(16);
  float* inside = nullptr;
  {
    const Arena::Mark mark(arena);
    inside = arena.make<float>(16).data();
  }
  EXPECT_EQ(arena.make<float>(16).data(), inside);
}

TEST(Arena, WithoutMemoryItThrowsAndIsAsBefore) {
  size_t most = size_t{1} << 30;
  std::vector<size_t> asked;
  Arena arena([&](size_t size_bytes) -> Result<Arena::Block> {
    asked.push_back(size_bytes);
    if (size_bytes > most) return resource_exhausted("no memory");
    auto owner = std::make_shared<std::vector<std::byte>>(size_bytes);
    return Arena::Block{owner, owner->data(), size_bytes};
  });
  EXPECT_EQ(arena.make<std::byte>(size_t{3} << 20).size(), size_t{3} << 20);
  most = size_t{2} << 20;
  const size_t before = arena.capacity_bytes();
  EXPECT_EQ(arena.make<std::byte>(size_t{2} << 20).size(), size_t{2} << 20)
      << "room for the future could not be had, for this it could";
  EXPECT_EQ(asked, (std::vector<size_t>{size_t{3} << 20, size_t{3} << 20, size_t{2} << 20}));
  EXPECT_THROW(arena.allocate(size_t{4} << 20), std::bad_alloc);
  EXPECT_EQ(arena.capacity_bytes(), before + (size_t{2} << 20));
  arena.reset();
  EXPECT_NE(arena.allocate(1), nullptr);
}

TEST(OutOfMemory, BecomesAnError) {
  const auto grow = [](size_t size) {
    return or_out_of_memory("the list cannot grow", [size]() -> Result<size_t> { return std::vector<char>(size).size(); });
  };
  // As operator new would, of which sanitizers have their own that ends the process.
  const auto get_none = or_out_of_memory("the list cannot grow", []() -> Result<size_t> { throw std::bad_alloc(); });
  EXPECT_EQ(*grow(3), 3u);
  for (const auto& refused : {grow(std::numeric_limits<size_t>::max()), get_none}) {
    EXPECT_EQ(refused.status().code(), Code::kResourceExhausted);
    EXPECT_NE(refused.status().message().find("the list cannot grow: the system gives no more memory"), std::string::npos);
  }
}

TEST(CheckedMath, NothingWraps) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(checked_mul(kMax, 2), std::nullopt);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_mul(3, 4), 12u);
  EXPECT_EQ(round_up(33, 32), 64);
}

}  // namespace
}  // namespace choral
