#include "lora/peft/adapter_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/temp_dir.h"

namespace choral::lora {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::string_literals;

TEST(AdapterNameTest, OneSpellingForEachName) {
  for (const std::string& good : {"a"s, "team/sql"s, "org:model+v2,x"s, "a b"s, "..."s, ".hidden"s, "日本語"s, "based"s,
                                  "base/x"s, std::string(kMaxNameBytes, 'x')}) {
    EXPECT_TRUE(check_adapter_name(good).ok()) << good;
  }
  const std::pair<std::string, std::string> bad[] = {{"", "needs a name"},
                                                     {"all\0nonsense"s, R"('all\x00nonsense' holds a control character)"},
                                                     {"a\nb", "control character"},
                                                     {"a\x7F", "control character"},
                                                     {"a\xC2\x9B[m", "control character"},
                                                     {"team//////x", "write 'team/x'"},
                                                     {"/a", "begins with '/'"},
                                                     {"a/", "write 'a'"},
                                                     {"./a", "write 'a'"},
                                                     {"team/./x", "write 'team/x'"},
                                                     {".", "'..'"},
                                                     {"/", "begins with '/'"},
                                                     {"..", "'..'"},
                                                     {"a/../b", "'..'"},
                                                     {"base", "the model without adapters"},
                                                     {std::string(kMaxNameBytes + 1, 'x'), "has 257 bytes; 256 are allowed"},
                                                     {std::string(1 << 20, '/'), "has 1048576 bytes"}};
  for (const auto& [name, why] : bad) {
    const Status status = check_adapter_name(name);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << why;
    EXPECT_THAT(status.message(), HasSubstr(why));
    EXPECT_LT(status.message().size(), 700u) << "a long name is not repeated";
  }
}

TEST(AdapterName, AGenerationStandsBehindTheLastAt) {
  const auto cut = [](std::string_view name) {
    const auto [plain, generation] = split_generation(name);
    return std::pair(std::string(plain), generation.value_or(0));
  };
  EXPECT_EQ(cut("policy@12"), std::pair(std::string("policy"), 12));
  EXPECT_EQ(cut("me@home@3"), std::pair(std::string("me@home"), 3));
  for (const char* name :
       {"policy", "policy@", "@3", "policy@x", "policy@3x", "policy@-3", "policy@0", "policy@03", "policy@99999999999"})
    EXPECT_EQ(cut(name), std::pair(std::string(name), 0)) << name;
}

class AdapterRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(root() / "team/sql");
    std::filesystem::create_directories(folder_.path() / "elsewhere/x");
  }
  std::filesystem::path root() const { return folder_.path() / "root"; }
  void link(const std::string& to, const std::string& name) const {
    std::filesystem::create_directory_symlink(to, root() / name);
  }

  testing::TempDir folder_;
};

TEST_F(AdapterRootTest, FindsFoldersAndLinksToThem) {
  link("team/sql", "current");
  for (const char* name : {"team/sql", "current"}) {
    const auto found = adapter_in_root(root(), name);
    ASSERT_TRUE(found.ok() && *found) << name;
    EXPECT_EQ(**found, std::filesystem::canonical(root() / "team/sql"));
  }
  for (const char* name : {"none", "team/none", "team/sql/none"}) {
    const auto found = adapter_in_root(root(), name);
    EXPECT_TRUE(found.ok() && !*found) << name;
  }
  EXPECT_FALSE(*adapter_in_root(folder_.path() / "missing", "a"));
}

TEST_F(AdapterRootTest, ALinkOutOfItIsNamedWithItsTarget) {
  link("../elsewhere", "out");
  link("../elsewhere/x", "linked");
  std::filesystem::create_directory(folder_.path() / "root2");  // begins as the root does
  link("../root2", "sibling");
  for (const char* name : {"linked", "out", "out/x", "sibling"}) {
    const auto refused = adapter_in_root(root(), name);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.status().code(), Code::kNotFound);
    EXPECT_THAT(refused.status().message(),
                AllOf(HasSubstr("leads out of "), HasSubstr("--lora NAME=PATH"), Not(HasSubstr("did you mean"))));
  }
  EXPECT_THAT(adapter_in_root(root(), "linked").status().message(), HasSubstr("elsewhere/x;"));
}

TEST_F(AdapterRootTest, ALinkOnTheWayIsNoOtherName) {
  link(".", "loop");
  const auto refused = adapter_in_root(root(), "loop/loop/team/sql");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("its name is 'team/sql'"));
  EXPECT_FALSE(*adapter_in_root(root(), "loop")) << "the root itself is no adapter";
}

}  // namespace
}  // namespace choral::lora
