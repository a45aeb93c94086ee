#include "base/system_files.h"

#include <gtest/gtest.h>

#include "base/fake_machine_test.h"

namespace choral {
namespace {

TEST(SystemFiles, ReadsNumbersAndNothingElse) {
  const FakeMachine machine;
  const SystemFiles files = machine.files();
  const auto number = [&](std::string_view text) {
    machine.write("/n", text);
    return files.number("/n");
  };
  EXPECT_EQ(number("42\n"), 42);
  EXPECT_EQ(number("-1\n"), -1);
  EXPECT_EQ(number("9223372036854771712\n"), 9223372036854771712);
  for (const char* no : {"", "\n", "max\n", "12x\n", "1 2\n", "18446744073709551615\n", "0x10\n", "1.5\n", "\xff\xfe\n"}) {
    EXPECT_EQ(number(no), std::nullopt) << no;
  }
  EXPECT_EQ(files.number("/absent"), std::nullopt);
  EXPECT_EQ(files.text("/"), "") << "a folder has no text";
}

TEST(SystemFiles, FindsTheValueOfAWholeKey) {
  const FakeMachine machine;
  machine.write("/f",
                "MemTotalHuge: 1 kB\nMemTotal:       23 kB\nMemTotal: 7 kB\nmodel name\t: AMD EPYC\nactive_file 12\nlast 3");
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.number_of("/f", "MemTotal"), 23);
  EXPECT_EQ(files.value_of("/f", "model name"), "AMD EPYC");
  EXPECT_EQ(files.number_of("/f", "active_file"), 12);
  EXPECT_EQ(files.number_of("/f", "last"), 3);
  EXPECT_EQ(files.number_of("/f", "model name"), std::nullopt);
  EXPECT_EQ(files.value_of("/f", "Mem"), "");
}

TEST(SystemFiles, TakesNoMoreThanAMegabyte) {
  const FakeMachine machine;
  machine.write("/endless", std::string(3 * SystemFiles::kMostBytes, '7'));
  const SystemFiles files = machine.files();
  EXPECT_EQ(files.text("/endless").size(), SystemFiles::kMostBytes);
  EXPECT_EQ(files.number("/endless"), std::nullopt);
  EXPECT_EQ(SystemFiles().text("/dev/zero").size(), SystemFiles::kMostBytes);
}

}  // namespace
}  // namespace choral
