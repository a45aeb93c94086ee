#include "support/temp_dir.h"

#include <gmock/gmock.h>

#include <sstream>

namespace choral::testing {
namespace {

TEST(TempDir, WritesAndLeavesNothing) {
  std::filesystem::path path;
  {
    const TempDir dir;
    path = dir.path();
    const std::string file = dir.write("a/b.txt", std::string_view("x\0y", 3));
    EXPECT_EQ(file, dir / "a/b.txt");
    std::stringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    EXPECT_EQ(text.str(), std::string("x\0y", 3));
    EXPECT_NE(TempDir().path(), path);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace choral::testing
