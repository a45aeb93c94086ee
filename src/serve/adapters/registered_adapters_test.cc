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
  const RegisteredAdapter sql{"sql", "/a/sql", true, 1'700'000'000}, odd{"team/ü' OR 1=1 --", "/a/x y", false, 7};
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
    ASSERT_TRUE(adapters->set_pinned("never", true).ok());
    EXPECT_EQ(adapters->find("sql")->value(), adapters->all()->front());
    EXPECT_EQ(*adapters->find("gone"), std::nullopt);
  }
  EXPECT_THAT(all(*open(folder / "state")), ElementsAre(RegisteredAdapter{"sql", "/a/sql", false, 1'700'000'000}, odd));
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
        if (!(*adapters)->put({"a" + std::to_string(i % 7), "/p/" + digest, i % 2 == 0, i}).ok()) break;
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
      newest = std::max(newest, one.added_unix_s);
      EXPECT_EQ(one.name, "a" + std::to_string(one.added_unix_s % 7)) << "a row is whole";
      EXPECT_EQ(one.path, "/p/" + std::to_string(one.added_unix_s));
    }
    EXPECT_GE(newest, last) << "what was acknowledged is there";
    EXPECT_LE(newest, last + 1) << "and at most the one that was under way";
    acknowledged = newest + 1;
  }
}

int number(RegisteredAdapters& adapters, const std::string& name, const std::string& digest) {
  const auto found = adapters.number_of(name, digest);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : -1;
}

TEST(RegisteredAdapters, GenerationsOutlastTheNamesRegistration) {
  const testing::TempDir folder;
  {
    const auto adapters = open(folder.path());
    EXPECT_EQ(number(*adapters, "a", "x"), 1);
    EXPECT_EQ(number(*adapters, "a", "x"), 1) << "the same content";
    EXPECT_EQ(number(*adapters, "a", "y"), 2);
    ASSERT_TRUE(adapters->put({"a", "/p"}).ok());
    ASSERT_TRUE(adapters->remove("a").ok());
    EXPECT_EQ(adapters->number_of("../a", "x").status().code(), Code::kInvalidArgument);
    EXPECT_EQ(adapters->number_of("a", "").status().code(), Code::kInvalidArgument);
  }
  const auto adapters = open(folder.path());
  EXPECT_EQ(number(*adapters, "a", "y"), 2);
  EXPECT_EQ(number(*adapters, "a", "x"), 3) << "1 was followed by another";
  EXPECT_EQ(number(*adapters, "b", "x"), 1);
}

// Names beyond the limit are forgotten, but no number of theirs is given again.
TEST(RegisteredAdapters, ForgottenGenerationsAreNotGivenAgain) {
  const testing::TempDir folder;
  open(folder.path());
  edit(file_in(folder.path()),
       "INSERT INTO generations WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < 100001) "
       "SELECT 'n' || n, 5 + (n = 7), 'd' FROM i; INSERT INTO adapters VALUES ('n9', '/p', 0, 0)");
  const auto adapters = open(folder.path());
  EXPECT_EQ(number(*adapters, "fresh", "x"), 1) << "by then nobody was forgotten";
  EXPECT_EQ(number(*adapters, "n9", "d"), 5) << "registered";
  EXPECT_EQ(number(*adapters, "n8", "d"), 7) << "above all that were forgotten";
  EXPECT_EQ(number(*adapters, "fresh", "x"), 1);
}

// A child takes generations as fast as it can and tells of each; none that it told of is told again by the next one.
TEST(RegisteredAdapters, AKilledProcessLeavesNoGenerationToBeGivenTwice) {
  const testing::TempDir folder;
  int told = 0, digest = 0;
  for (int round = 0; round < 8; ++round) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto adapters = RegisteredAdapters::open(folder.path());
      for (int i = round * 1'000'000; adapters.ok(); ++i) {
        const auto generation = (*adapters)->number_of("a", std::to_string(i));
        const int pair[] = {generation.ok() ? *generation : -1, i};
        if (write(pipes[1], pair, sizeof pair) != sizeof pair) break;
      }
      _exit(1);
    }
    close(pipes[1]);
    int pair[2];
    for (int k = 0; read(pipes[0], pair, sizeof pair) == ssize_t{sizeof pair}; ++k) {
      EXPECT_GT(pair[0], told) << "of content " << pair[1] << ", after " << digest;
      told = pair[0];
      digest = pair[1];
      if (k == 3 + round) kill(child, SIGKILL);  // what it told of until then is still to be read
    }
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(pipes[0]);
  }
}

TEST(RegisteredAdapters, NumbersOfNamesStay) {
  const testing::TempDir folder;
  const NumberedName first[] = {{"b", 0}, {"a", 1}}, next[] = {{"c", 2}}, twice[] = {{"d", 3}, {"a", 4}};
  {
    const auto adapters = open(folder.path());
    EXPECT_THAT(*adapters->numbers(), IsEmpty());
    ASSERT_TRUE(adapters->put_numbers(first).ok());
    ASSERT_TRUE(adapters->put_numbers(next).ok());
    EXPECT_FALSE(adapters->put_numbers(twice).ok());
    ASSERT_TRUE(adapters->put({"e", "/p"}).ok()) << "nothing is left of what failed";
  }
  EXPECT_THAT(*open(folder.path())->numbers(), ElementsAre(first[0], first[1], next[0]));
  edit(file_in(folder.path()), "UPDATE numbers SET number = 7 WHERE name = 'c'");
  EXPECT_EQ(open(folder.path())->numbers().status().code(), Code::kCorrupt);
}

TEST(RegisteredAdapters, AFileOfVersion1IsTakenOver) {
  const testing::TempDir folder;
  edit(file_in(folder.path()),
       "PRAGMA application_id=1130918449; PRAGMA user_version=1;"
       "CREATE TABLE adapters (name TEXT PRIMARY KEY NOT NULL, path TEXT NOT NULL, pinned INTEGER NOT NULL, "
       "generation INTEGER NOT NULL, digest TEXT NOT NULL, added_unix_s INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
       "INSERT INTO adapters VALUES ('sql', '/a/sql', 1, 4, 'abc', 7), ('new', '/n', 0, 0, '', 8)");
  for (int start = 0; start < 2; ++start) {
    const auto adapters = open(folder.path());
    EXPECT_THAT(all(*adapters),
                ElementsAre(RegisteredAdapter{"new", "/n", false, 8}, RegisteredAdapter{"sql", "/a/sql", true, 7}));
    EXPECT_EQ(number(*adapters, "sql", "abc"), 4);
  }
  EXPECT_EQ(number(*open(folder.path()), "sql", "def"), 5);
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
    edit(file_in(folder.path()), "INSERT INTO adapters VALUES ('../../etc', '/p', 0, 0)");
    const auto opened = open(folder.path());
    EXPECT_THAT(opened->all().status().message(), AllOf(HasSubstr("no adapter"), HasSubstr(what_to_do)));
  }
  {
    const testing::TempDir folder;
    open(folder.path());
    edit(file_in(folder.path()), "PRAGMA user_version=3");
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
