#include "serve/adapters/registered_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace choral::serve {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

std::unique_ptr<RegisteredAdapters> open(const std::string& folder) {
  auto opened = RegisteredAdapters::open(folder);
  CHORAL_CHECK(opened.ok(), opened.status().message());
  return std::move(*opened);
}
std::vector<RegisteredAdapter> all(RegisteredAdapters& adapters) {
  auto list = adapters.all();
  CHORAL_CHECK(list.ok(), list.status().message());
  return std::move(*list);
}
std::string file_in(const std::string& folder) { return folder + "/" + RegisteredAdapters::kFileName; }

// Somebody else's hand on the file.
void edit(const std::string& file, const char* sql) {
  sqlite3* db = nullptr;
  CHORAL_CHECK(sqlite3_open(file.c_str(), &db) == SQLITE_OK, "opens");
  CHORAL_CHECK(sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK, sqlite3_errmsg(db));
  sqlite3_close(db);
}

TEST(RegisteredAdapters, WhatWasPutIsThereAfterARestart) {
  const testing::TempDir folder;
  const RegisteredAdapter sql{"sql", "/a/sql", true, 3, "abc", 1'700'000'000},
      odd{"team/ü' OR 1=1 --", "/a/x y", false, 0, "", 7};
  {
    const auto adapters = open(folder / "state");
    EXPECT_THAT(all(*adapters), IsEmpty());
    ASSERT_TRUE(adapters->put({"sql", "/old"}).ok());
    ASSERT_TRUE(adapters->put(odd).ok());
    ASSERT_TRUE(adapters->put({"gone", "/g"}).ok());
    ASSERT_TRUE(adapters->put(sql).ok());
    ASSERT_TRUE(adapters->remove("gone").ok());
    EXPECT_TRUE(adapters->remove("never").ok());
  }
  {
    const auto adapters = open(folder / "state");
    EXPECT_THAT(all(*adapters), ElementsAre(sql, odd));
    ASSERT_TRUE(adapters->set_pinned("sql", false).ok());
    ASSERT_TRUE(adapters->set_seen("sql", 4, "def").ok());
    ASSERT_TRUE(adapters->set_seen("never", 4, "def").ok());
  }
  EXPECT_THAT(all(*open(folder / "state")), ElementsAre(RegisteredAdapter{"sql", "/a/sql", false, 4, "def", 1'700'000'000}, odd));
  struct stat facts {};
  ASSERT_EQ(::stat(file_in(folder / "state").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "state"), {}), 1) << "one file";
}

TEST(RegisteredAdapters, WhatIsNoAdapterIsRefused) {
  const testing::TempDir folder;
  const auto adapters = open(folder.path());
  EXPECT_EQ(adapters->put({"../x", "/p"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(adapters->put({"base", "/p"}).code(), Code::kInvalidArgument);
  EXPECT_EQ(adapters->put({"x", ""}).code(), Code::kInvalidArgument);
  EXPECT_EQ(adapters->put({"x", std::string(5000, 'p')}).code(), Code::kInvalidArgument);
  EXPECT_THAT(all(*adapters), IsEmpty());
}

TEST(RegisteredAdapters, OneServerAtATime) {
  const testing::TempDir folder;
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const pid_t child = fork();  // a lock belongs to a process
  if (child == 0) {
    const auto held = RegisteredAdapters::open(folder.path());
    const char ok = held.ok() ? 'y' : 'n';
    if (write(pipes[1], &ok, 1) == 1) pause();
    _exit(1);
  }
  char ok = 'n';
  ASSERT_EQ(read(pipes[0], &ok, 1), 1);
  ASSERT_EQ(ok, 'y');
  const auto second = RegisteredAdapters::open(folder.path());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("another server"));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(open(folder.path())->put({"x", "/p"}).ok());
  close(pipes[0]);
  close(pipes[1]);
}

// A child registers adapters as fast as it can and says so of each; it is killed in the midst of that, again and again.
TEST(RegisteredAdapters, AKilledProcessLosesNothingItAcknowledgedAndHoldsNoLock) {
  const testing::TempDir folder;
  int64_t acknowledged = 0;
  for (int round = 0; round < 12; ++round) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto adapters = RegisteredAdapters::open(folder.path());
      for (int64_t i = acknowledged; adapters.ok(); ++i) {
        const std::string digest = std::to_string(i);
        if (!(*adapters)->put({"a" + std::to_string(i % 7), "/p/" + digest, i % 2 == 0, i, digest, i}).ok()) break;
        if (write(pipes[1], &i, sizeof i) != sizeof i) break;
      }
      _exit(1);
    }
    close(pipes[1]);
    int64_t last = -1;
    for (int k = 0; k < 3 + round; ++k) ASSERT_EQ(read(pipes[0], &last, sizeof last), ssize_t{sizeof last});
    usleep(static_cast<useconds_t>(round * 137));
    kill(child, SIGKILL);
    while (read(pipes[0], &last, sizeof last) == ssize_t{sizeof last}) {
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    close(pipes[0]);

    const auto adapters = open(folder.path());
    int64_t newest = -1;
    for (const auto& one : all(*adapters)) {
      newest = std::max(newest, one.generation);
      EXPECT_EQ(one.name, "a" + std::to_string(one.generation % 7)) << "a row is whole";
      EXPECT_EQ(one.path, "/p/" + one.digest);
      EXPECT_EQ(one.added_unix_s, one.generation);
    }
    EXPECT_GE(newest, last) << "what was acknowledged is there";
    EXPECT_LE(newest, last + 1) << "and at most the one that was under way";
    acknowledged = newest + 1;
  }
}

TEST(RegisteredAdapters, DamagedAndForeignFilesAreRefusedAndKept) {
  const std::string what_to_do = "move it away";
  const auto refused = [&](const std::string& folder, std::string_view reason) {
    std::ifstream before_file(file_in(folder), std::ios::binary);
    const std::string before{std::istreambuf_iterator<char>(before_file), {}};
    const auto opened = RegisteredAdapters::open(folder);
    EXPECT_EQ(opened.status().code(), Code::kCorrupt) << reason;
    EXPECT_THAT(opened.status().message(), AllOf(HasSubstr(std::string(reason)), HasSubstr("move it away")));
    std::ifstream after_file(file_in(folder), std::ios::binary);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(after_file), {}), before) << "nothing was done to it";
  };
  {
    const testing::TempDir folder;
    folder.write(RegisteredAdapters::kFileName, std::string(5000, 'x'));
    refused(folder.path(), "is no registry");
  }
  {
    const testing::TempDir folder;
    edit(file_in(folder.path()), "CREATE TABLE mine (x)");
    refused(folder.path(), "another program");
  }
  {
    const testing::TempDir folder;
    open(folder.path());
    edit(file_in(folder.path()), "CREATE TRIGGER t AFTER INSERT ON adapters BEGIN DELETE FROM adapters; END");
    refused(folder.path(), "other tables");
  }
  {
    const testing::TempDir folder;
    for (int i = 0; i < 30; ++i) ASSERT_TRUE(open(folder.path())->put({"a" + std::to_string(i), std::string(3000, 'p')}).ok());
    std::fstream file(file_in(folder.path()), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(2 * 4096);
    const std::string noise(8192, '\x7F');
    file.write(noise.data(), static_cast<std::streamsize>(noise.size()));
    file.close();
    refused(folder.path(), "is damaged");
  }
  {
    const testing::TempDir folder;
    open(folder.path());
    edit(file_in(folder.path()), "INSERT INTO adapters VALUES ('../../etc', '/p', 0, 0, '', 0)");
    const auto opened = open(folder.path());
    EXPECT_THAT(opened->all().status().message(), AllOf(HasSubstr("no adapter"), HasSubstr(what_to_do)));
  }
  {
    const testing::TempDir folder;
    open(folder.path());
    edit(file_in(folder.path()), "PRAGMA user_version=2");
    EXPECT_EQ(RegisteredAdapters::open(folder.path()).status().code(), Code::kUnsupported);
  }
  {
    const testing::TempDir folder, elsewhere;
    fs::create_symlink(elsewhere / "target", file_in(folder.path()));
    EXPECT_EQ(RegisteredAdapters::open(folder.path()).status().code(), Code::kCorrupt);
    EXPECT_FALSE(fs::exists(elsewhere / "target"));
  }
}

TEST(RegisteredAdapters, ADirectoryThatCannotBeIsSaid) {
  const testing::TempDir folder;
  const std::string file = folder.write("file", "x");
  EXPECT_FALSE(RegisteredAdapters::open(file).ok());
  EXPECT_FALSE(RegisteredAdapters::open(file + "/below").ok());
}

}  // namespace
}  // namespace choral::serve
