#include "cache/prefix_key.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace choral::cache {
namespace {

AdapterIdentity adapter(uint8_t byte, float scale) {
  AdapterIdentity identity;
  identity.digest.fill(byte);
  identity.scale = scale;
  return identity;
}

std::vector<int32_t> counting(size_t count) {
  std::vector<int32_t> ids(count);
  std::iota(ids.begin(), ids.end(), 1000);
  return ids;
}

PrefixChain chain_of(const PrefixRoot& root, std::span<const int32_t> ids, int32_t block_tokens) {
  PrefixHasher hasher;
  PrefixChain chain;
  chain.reserve(static_cast<int32_t>(ids.size()));
  chain.extend(hasher, root, ids, block_tokens);
  return chain;
}

TEST(PrefixRoot, DiffersByEverythingThatChangesTheKV) {
  const AdapterIdentity a = adapter(1, 1.0F), b = adapter(2, 1.0F), a_half = adapter(1, 0.5F);
  const std::vector<std::vector<AdapterIdentity>> mixes = {{}, {a}, {b}, {a_half}, {a, b}, {b, a}, {a, a}};
  std::vector<PrefixRoot> roots;
  for (const auto& mix : mixes) {
    for (const char* salt : {"", "tenant", "tenan"}) roots.push_back(make_prefix_root(mix, salt));
  }
  for (size_t i = 0; i < roots.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(roots[i], roots[j]) << i << " " << j;
  }
  EXPECT_EQ(make_prefix_root(mixes[4], "x"), make_prefix_root(mixes[4], "x"));
}

TEST(PrefixRoot, SaltCannotImitateAnAdapter) {
  // An adapter whose digest begins like the length of a salt, and the salt that goes on like the rest of that adapter.
  AdapterIdentity identity = adapter('A', 1.0F);
  const uint64_t salt_size = 24 + sizeof(float) + sizeof(uint64_t);
  std::memcpy(identity.digest.data(), &salt_size, sizeof salt_size);
  std::string salt(24, 'A');
  salt.append(reinterpret_cast<const char*>(&identity.scale), sizeof identity.scale);
  salt.append(sizeof(uint64_t), '\0');
  ASSERT_EQ(salt.size(), salt_size);
  EXPECT_NE(make_prefix_root(std::span(&identity, 1), ""), make_prefix_root({}, salt));
}

TEST(PrefixChain, KeyIsTheHashOfPreviousKeyAndTokenIds) {
  const PrefixRoot root = make_prefix_root({}, "salt");
  const std::vector<int32_t> ids = counting(9);
  const PrefixChain chain = chain_of(root, ids, 4);
  ASSERT_EQ(chain.size(), 2);  // the ninth token's block is not full
  PrefixKey previous = root.key;
  for (int32_t i = 0; i < 2; ++i) {
    std::vector<std::byte> bytes(32 + 16);
    std::memcpy(bytes.data(), previous.data(), 32);
    std::memcpy(bytes.data() + 32, ids.data() + i * 4, 16);
    previous = sha256(bytes);
    EXPECT_EQ(chain[i], previous);
  }
}

TEST(PrefixChain, LaterKeysKnowEveryEarlierToken) {
  std::vector<int32_t> ids = counting(12);
  const PrefixRoot root = make_prefix_root({}, "");
  const PrefixChain chain = chain_of(root, ids, 4);
  ids[0] += 1;
  const PrefixChain other = chain_of(root, ids, 4);
  for (int32_t i = 0; i < 3; ++i) EXPECT_NE(chain[i], other[i]);
}

PrefixChain activated_chain(const PrefixOrigin& origin, std::span<const int32_t> ids, int32_t block_tokens) {
  PrefixHasher hasher;
  PrefixChain chain;
  chain.reserve(static_cast<int32_t>(ids.size()));
  chain.extend(hasher, origin, ids, block_tokens);
  return chain;
}

TEST(PrefixActivation, TheKeyTakesTheAdapterFromTheBlockOnInWhichItActs) {
  const std::vector<int32_t> ids = counting(20);
  const AdapterIdentity a = adapter(1, 1.0F), b = adapter(2, 1.0F);
  const PrefixRoot base = make_prefix_root({}, "salt"), root_a = make_prefix_root(std::span(&a, 1), "salt"),
                   root_b = make_prefix_root(std::span(&b, 1), "salt");
  const auto chain = [&](int32_t activation, const PrefixRoot& activated) {
    return activated_chain({.root = base, .activation_token = activation, .activated_root = activated}, ids, 4);
  };
  const PrefixChain of_base = chain_of(base, ids, 4), of_a = chain_of(root_a, ids, 4);
  // First block that differs from the base's: that of the activation, which may be its first or its last token.
  for (const auto& [activation, first] : {std::pair{1, 0}, {3, 0}, {4, 1}, {7, 1}, {8, 2}, {19, 4}, {20, 5}, {33, 5}}) {
    const PrefixChain activated = chain(activation, root_a);
    for (int32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(activated[i] == of_base[i], i < first) << activation << " block " << i;
      EXPECT_NE(activated[i], of_a[i]);
    }
  }
  const PrefixChain one = chain(9, root_a), same = chain(9, root_a), other = chain(9, root_b), earlier = chain(8, root_a);
  for (int32_t i = 0; i < 5; ++i) {
    EXPECT_EQ(one[i], same[i]);
    EXPECT_EQ(one[i] == other[i], i < 2);
    EXPECT_EQ(one[i] == earlier[i], i < 2);  // in the same block, and yet other KV
  }
}

TEST(PrefixActivation, KeyIsTheFormulaOfTheHeader) {
  const std::vector<int32_t> ids = counting(8);
  const PrefixRoot base = make_prefix_root({}, ""), activated = make_prefix_root({}, "other");
  const PrefixChain chain = activated_chain({.root = base, .activation_token = 6, .activated_root = activated}, ids, 4);
  PrefixHasher hasher;
  const PrefixKey first = hasher.next(base.key, std::span(ids).first(4));
  EXPECT_EQ(chain[0], first);
  EXPECT_EQ(chain[1], hasher.next(hasher.activate(first, activated, 6), std::span(ids).subspan(4)));
}

TEST(PrefixActivation, AtTheBeginningTheRootSaysAll) {
  const std::vector<int32_t> ids = counting(8);
  const PrefixRoot root = make_prefix_root({}, ""), unused = make_prefix_root({}, "other");
  const PrefixChain chain = activated_chain({.root = root, .activation_token = 0, .activated_root = unused}, ids, 4);
  const PrefixChain plain = chain_of(root, ids, 4);
  for (int32_t i = 0; i < 2; ++i) EXPECT_EQ(chain[i], plain[i]);
}

TEST(PrefixActivation, GrowingByPiecesGivesTheSameKeys) {
  const std::vector<int32_t> ids = counting(17);
  const PrefixOrigin origin{.root = make_prefix_root({}, ""), .activation_token = 6, .activated_root = make_prefix_root({}, "a")};
  PrefixHasher hasher;
  PrefixChain chain;
  chain.reserve(4);
  for (size_t count = 1; count <= ids.size(); ++count) chain.extend(hasher, origin, std::span(ids).first(count), 4);
  const PrefixChain whole = activated_chain(origin, ids, 4);
  for (int32_t i = 0; i < 4; ++i) EXPECT_EQ(chain[i], whole[i]);
}

TEST(PrefixChain, GrowingByPiecesGivesTheSameKeys) {
  const std::vector<int32_t> ids = counting(13);
  const PrefixRoot root = make_prefix_root({}, "");
  PrefixHasher hasher;
  PrefixChain chain;
  chain.reserve(3);
  for (size_t count = 1; count <= ids.size(); ++count) {
    chain.extend(hasher, root, std::span(ids).first(count), 4);
    EXPECT_EQ(chain.size(), static_cast<int32_t>(count / 4));
  }
  const PrefixChain whole = chain_of(root, ids, 4);
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(chain[i], whole[i]);
}

}  // namespace
}  // namespace choral::cache
