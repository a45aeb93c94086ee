#include "serve/keys/api_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kSecret = "sk-secret-of-alice-0001";
// printf %s sk-secret-of-alice-0001 | sha256sum
std::string hash_of(const std::string& key) { return to_hex(sha256(std::as_bytes(std::span(key.data(), key.size())))); }

std::string write_keys(const testing::TempDir& folder, const std::string& text, mode_t mode = 0600) {
  const std::string path = folder.write("keys", text);
  EXPECT_EQ(::chmod(path.c_str(), mode), 0);
  return path;
}

std::unique_ptr<ApiKeys> make(const std::string& file, const std::vector<std::pair<std::string, KeyRole>>& plain = {}) {
  auto keys = ApiKeys::make(file, plain);
  CHORAL_CHECK(keys.ok(), keys.status().message());
  return std::move(*keys);
}

TEST(ApiKeys, HashedAndPlainLinesAndRoles) {
  const testing::TempDir folder;
  const auto keys = make(write_keys(folder, "# who may\n\nalice:" + hash_of(kSecret) + "\r\n  plain-key-of-some-length \n" +
                                                "ops:" + hash_of("ops-key-0123456789") + "\tadmin\nanother-plain-key-00 user"));
  ASSERT_TRUE(keys->find(kSecret).has_value());
  EXPECT_EQ(keys->find(kSecret)->name, "alice");
  EXPECT_EQ(keys->find(kSecret)->role, KeyRole::kUser);
  EXPECT_EQ(keys->find("plain-key-of-some-length")->name, "line-4");
  EXPECT_EQ(keys->find("ops-key-0123456789")->role, KeyRole::kAdmin);
  EXPECT_TRUE(keys->find("another-plain-key-00").has_value());
  EXPECT_THAT(keys->warnings(), IsEmpty());
  for (const std::string& wrong : {std::string(), std::string("alice"), kSecret + "x", kSecret.substr(1), hash_of(kSecret),
                                   std::string(kMaxKeyBytes + 1, 'x'), std::string("# who may")}) {
    EXPECT_FALSE(keys->find(wrong).has_value()) << wrong;
  }
}

TEST(ApiKeys, EachHasASaltThatIsItsAlone) {
  const testing::TempDir folder;
  const auto salts = [&](const std::string& text) {
    const auto keys = make(write_keys(folder, text));
    return std::pair(keys->find(kSecret)->salt, keys->find("plain-key-of-some-length")->salt);
  };
  const auto first = salts("alice:" + hash_of(kSecret) + "\nplain-key-of-some-length");
  EXPECT_EQ(first.first.size(), 64u);
  EXPECT_NE(first.first, first.second);
  EXPECT_NE(first.first, hash_of(kSecret));
  EXPECT_EQ(salts("plain-key-of-some-length\nrenamed:" + hash_of(kSecret)), first)
      << "of the key, wherever and however it stands";
}

TEST(ApiKeys, AWrongLineIsNamedAndItsKeyIsNot) {
  std::vector<std::string> warnings;
  const std::string hash = hash_of(kSecret);
  for (const std::string& line :
       std::vector<std::string>{"alice:" + hash.substr(1), "alice:" + hash + "0", "al ice:" + hash, ":" + hash,
                                "alice:secret-thing", hash, "secret-key-0123456789 root", "secret-\xC3\xA9-key-0123456",
                                std::string(600, 'k'), std::string(65, 'n') + ":" + hash}) {
    const auto parsed = parse_key_file("# first\n" + line + "\n", "keys", warnings);
    ASSERT_EQ(parsed.status().code(), Code::kCorrupt) << line;
    EXPECT_THAT(parsed.status().message(), AllOf(HasSubstr("keys: line 2"), Not(HasSubstr("secret")), Not(HasSubstr("kkkk"))));
  }
  EXPECT_THAT(parse_key_file("a:" + hash + "\na:" + hash_of("x") + "\n", "keys", warnings).status().message(),
              HasSubstr("'a' stands twice"));
  EXPECT_THAT(parse_key_file("a:" + hash + "\n" + kSecret + "\n", "keys", warnings).status().message(), HasSubstr("same key"))
      << "also when one of them is plain";
  std::string many;
  for (size_t i = 0; i <= kMaxKeys; ++i) many += "a-key-with-a-number-" + std::to_string(i) + "\n";
  EXPECT_EQ(parse_key_file(many, "keys", warnings).status().code(), Code::kTooLarge);
}

TEST(ApiKeys, WhatIsUnwiseIsWarnedOf) {
  const testing::TempDir folder;
  const auto keys = make(write_keys(folder, "short\n", 0644), {{"also-short", KeyRole::kAdmin}});
  EXPECT_THAT(keys->warnings(), ElementsAre(HasSubstr("--api-key"), HasSubstr("mode 644"), HasSubstr("line 1")));
  EXPECT_EQ(keys->find("also-short")->role, KeyRole::kAdmin);
}

TEST(ApiKeys, AGroupMayReadTheFileAndNobodyElse) {
  for (const auto& [mode, is_warned] :
       {std::pair<mode_t, bool>{0600, false}, {0440, false}, {0640, false}, {0660, true}, {0604, true}}) {
    const testing::TempDir folder;
    EXPECT_EQ(make(write_keys(folder, kSecret + "\n", mode), {})->warnings().size(), is_warned ? 1 : 0) << std::oct << mode;
  }
}

TEST(ApiKeys, AReloadTakesNewKeysAndABrokenFileChangesNothing) {
  const testing::TempDir folder;
  const std::string path = write_keys(folder, kSecret + "\n");
  const auto keys = make(path, {{"given-on-the-command-line", KeyRole::kUser}});
  write_keys(folder, "another-key-0123456789\n");
  ASSERT_TRUE(keys->reload().ok());
  EXPECT_FALSE(keys->find(kSecret).has_value());
  EXPECT_TRUE(keys->find("another-key-0123456789").has_value());
  EXPECT_TRUE(keys->find("given-on-the-command-line").has_value());
  for (const char* broken : {"", "# nothing\n", "x:y\n", "given-on-the-command-line\n"}) {
    write_keys(folder, broken);
    EXPECT_EQ(keys->reload().code(), Code::kCorrupt) << broken;
    EXPECT_TRUE(keys->find("another-key-0123456789").has_value()) << "nobody is locked out by a slip of the pen";
  }
  std::filesystem::remove(path);
  EXPECT_EQ(keys->reload().code(), Code::kNotFound);
  EXPECT_TRUE(keys->find("another-key-0123456789").has_value());
}

TEST(ApiKeys, WithoutAFileAndKeysNobodyIsAsked) {
  EXPECT_TRUE(make("")->empty());
  EXPECT_FALSE(make("", {{"a-key-on-the-command-line", KeyRole::kUser}})->empty());
  EXPECT_FALSE(ApiKeys::make("", {{"two words", KeyRole::kUser}}).ok());
}

TEST(ApiKeys, LookUpsGoOnDuringReloads) {
  const testing::TempDir folder;
  const auto keys = make(write_keys(folder, kSecret + "\n"));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) EXPECT_TRUE(keys->find(kSecret).has_value());
  });
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(keys->reload().ok());
  stop = true;
  reader.join();
}

TEST(ApiKeys, KeysComeInEitherHeader) {
  EXPECT_EQ(presented_key("Bearer abc", ""), "abc");
  EXPECT_EQ(presented_key("bEARER \t abc  ", "other"), "abc");
  EXPECT_EQ(presented_key("", " abc "), "abc");
  EXPECT_EQ(presented_key("Basic abc", "def"), "def");
  EXPECT_EQ(presented_key("Bearerabc", ""), "");
  EXPECT_EQ(presented_key("Bearer", ""), "");
  EXPECT_EQ(presented_key("Bearer ", "def"), "") << "an empty token is no key; the other header does not stand in for it";
  EXPECT_EQ(presented_key("", ""), "");
}

}  // namespace
}  // namespace choral::serve
