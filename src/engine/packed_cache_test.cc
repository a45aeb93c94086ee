// Packed weights on disk: a model that is started again answers with the same bits out of the file, and a file that is not what
// its name says, or of a model that changed, is never served.
#include "engine/packed_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "engine/tiny_model_test.h"
#include "support/temp_dir.h"
#include "support/tiny_models.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

namespace fs = std::filesystem;

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() {
    options_ = tiny_options();
    options_.packed_cache = cache_.string();
    options_.on_progress = [this](const LoadProgress& progress) {
      if (progress.phase == "packed") told_ = progress.detail;
    };
  }

  RequestOutput answer() {
    told_.clear();
    const auto llm = load_or_die(options_);
    if (llm == nullptr) return {};
    return answer_of(*llm);
  }
  static RequestOutput answer_of(LLM& llm) { return llm.generate({greedy_request(random_prompt(30, 1), 8)}).front(); }
  // A model that the test may change, which has been there for a while.
  void own_model() {
    fs::copy(options_.model, folder_.path() / "model");
    options_.model = folder_ / "model";
    for (const auto& file : fs::directory_iterator(options_.model)) fs::permissions(file, fs::perms::owner_all);
    settle();
  }
  // Until a file that was written now is known to be finished.
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    for (const auto& file : fs::directory_iterator(cache_)) all.push_back(file.path());
    return all;
  }
  void expect_read() const { EXPECT_THAT(told_, HasSubstr("read from " + cache_.string())); }
  void expect_kept() const { EXPECT_THAT(told_, HasSubstr("kept at " + cache_.string())); }

  choral::testing::TempDir folder_;
  fs::path cache_ = folder_.path() / "a" / "cache";
  EngineOptions options_;
  std::string told_;
};

TEST_F(PackedCacheTest, ASecondStartReadsWhatTheFirstPacked) {
  options_.packed_cache = "off";
  const auto plain = answer();
  EXPECT_EQ(told_, "");
  options_.packed_cache = cache_.string();
  const auto first = answer();
  expect_kept();
  const auto second = answer();
  expect_read();
  expect_same_bits(first, plain);
  expect_same_bits(second, plain);
  ASSERT_EQ(files().size(), 1u);
  EXPECT_EQ(fs::status(cache_).permissions(), fs::perms::owner_all);
  const auto content = packed_cache_content(cache_);
  EXPECT_EQ(content.files, 1);
  EXPECT_EQ(content.bytes, static_cast<int64_t>(fs::file_size(files().front())));
}

TEST_F(PackedCacheTest, EveryFamilyAnswersTheSame) {
  for (const auto& model : testing::tiny_models()) {
    SCOPED_TRACE(model);
    options_.model = testing::test_data("/models/" + model);
    options_.packed_cache = "off";
    const auto plain = LLM::load(options_);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    if (!(*plain)->info().gives_text) continue;
    options_.packed_cache = cache_.string();
    const auto wanted = answer_of(**plain);
    expect_same_bits(answer(), wanted);
    expect_kept();
    expect_same_bits(answer(), wanted);
    expect_read();
  }
}

TEST_F(PackedCacheTest, EveryFormHasAFileOfItsOwn) {
  size_t count = 0;
  for (const char* quantization : {"auto", "w8a8_dynamic", "w8a16", "w4a16", "w4a8_dynamic", "fp8"}) {
    SCOPED_TRACE(quantization);
    options_.quantization = quantization;
    options_.packed_cache = "off";
    const auto plain = answer();
    options_.packed_cache = cache_.string();
    expect_same_bits(answer(), plain);
    expect_kept();
    EXPECT_EQ(files().size(), ++count);
    expect_same_bits(answer(), plain);
    expect_read();
  }
  options_.quantization = "auto";
  options_.dtype = "bfloat16";
  answer();
  expect_kept();
  options_.activations = "int8";
  answer();
  expect_kept();
}

TEST_F(PackedCacheTest, EachRankHasAFileOfItsOwn) {
  const auto whole = answer();
  options_.tensor_parallel_size = 2;
  expect_same_bits(answer(), whole);
  expect_kept();
  EXPECT_EQ(files().size(), 3u);
  expect_same_bits(answer(), whole);
  expect_read();
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(PackedCacheTest, OfAModelThatChangedInPlaceNothingIsServed) {
  own_model();
  const auto before = answer();
  expect_kept();
  const auto old = files();
  // Another weight in the same file, of the same size and the same time.
  const auto shard = fs::path(options_.model) / "model-00003-of-00003.safetensors";
  const auto time = fs::last_write_time(shard);
  {
    std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-8, std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(-8, std::ios::end);
    file.put(byte);
  }
  fs::last_write_time(shard, time);
  settle();
  answer();
  expect_kept();
  ASSERT_EQ(files().size(), 1u);  // the other is gone
  EXPECT_NE(files(), old);
}

TEST_F(PackedCacheTest, ADamagedFileIsPackedAnew) {
  const auto first = answer();
  for (const uint64_t at : {uint64_t{20}, uint64_t{200}, (uint64_t{2} << 20) + 1000}) {
    SCOPED_TRACE(at);
    const fs::path file = files().front();
    {
      std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
      out.seekg(static_cast<std::streamoff>(at));
      const auto byte = static_cast<char>(out.get() ^ 1);
      out.seekp(static_cast<std::streamoff>(at));
      out.put(byte);
    }
    expect_same_bits(answer(), first);
    expect_kept();
    ASSERT_EQ(files(), std::vector{file});
    expect_same_bits(answer(), first);
    expect_read();
  }
}

TEST_F(PackedCacheTest, AFileThatIsWrittenToIsAnErrorOfTheSteps) {
  answer();
  const auto llm = load_or_die(options_);
  ASSERT_NE(llm, nullptr);
  expect_read();
  fs::resize_file(files().front(), uint64_t{2} << 20);
  const auto output = answer_of(*llm);
  EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.message();
  EXPECT_THAT(output.status.message(), HasSubstr(cache_.string()));
}

TEST_F(PackedCacheTest, OneThatCannotBeKeptIsServed) {
  const std::string file = folder_.write("a/file", "no folder");
  options_.packed_cache = file + "/cache";
  const auto output = answer();
  EXPECT_TRUE(output.status.ok());
  EXPECT_THAT(told_, HasSubstr("not kept"));
}

TEST_F(PackedCacheTest, OldFilesAreCleanedUp) {
  const std::string old = std::string(16, 'a') + '-' + std::string(32, 'b') + ".packed";
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(24 * 31);
  const auto make = [&](const std::string& name, bool is_old) {
    const std::string path = folder_.write("a/cache/" + name, "x");
    if (!is_old) return path;
    fs::last_write_time(path, long_ago);
    const timespec times[2] = {{.tv_sec = 1, .tv_nsec = 0}, {.tv_sec = 0, .tv_nsec = UTIME_OMIT}};
    ::utimensat(AT_FDCWD, path.c_str(), times, 0);
    return path;
  };
  const auto unused = make(old, true), left = make(old + ".part-abcdef", true), strange = make("notes.txt", true);
  const auto used = make(std::string(16, 'c') + '-' + std::string(32, 'b') + ".packed", false);
  const auto written_now = make(std::string(16, 'd') + '-' + std::string(32, 'b') + ".packed.part-abcdef", false);
  answer();
  expect_kept();
  EXPECT_FALSE(fs::exists(unused));
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(strange));
  EXPECT_TRUE(fs::exists(used));
  EXPECT_TRUE(fs::exists(written_now));
}

TEST_F(PackedCacheTest, ByDefaultSmallModelsAreNotKept) {
  ::setenv("HF_HOME", folder_.path().c_str(), 1);
  EXPECT_EQ(packed_cache_folder(), folder_.path() / "choral-packed");
  options_.packed_cache = "auto";
  answer();
  EXPECT_EQ(told_, "");
  EXPECT_FALSE(fs::exists(packed_cache_folder()));
  ::unsetenv("HF_HOME");
}

}  // namespace
}  // namespace choral::engine
