// Adapters that are given as bytes: the same answers as from their files, for as long as the name lives.
#include <gmock/gmock.h>

#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class AdapterBytesTest : public ::testing::Test {
 protected:
  static std::shared_ptr<const AdapterBytes> bytes_of(const std::filesystem::path& folder) {
    return std::make_shared<AdapterBytes>(AdapterBytes{*io::read_whole_file(folder / "adapter_config.json", 1 << 20),
                                                       *io::read_whole_file(folder / "adapter_model.safetensors", 1 << 30)});
  }
  static RequestOutput answer(LLM& llm, const std::string& adapter) {
    return llm.generate({with_adapters(greedy_request(random_prompt(70, 9), 8), {{adapter}})}).front();
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterBytesTest, AnswerAsTheirFilesDo) {
  const auto path = files_.write("a", 4, 1);
  options_.adapters = {{.name = "first", .bytes = bytes_of(path)}};
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"file", path}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "bytes", .bytes = bytes_of(path)}).ok());
  std::filesystem::remove_all(path);
  const auto infos = llm->adapters();
  ASSERT_EQ(infos.size(), 3u);
  for (const auto& info : infos) EXPECT_EQ(info.digest, infos.front().digest) << info.name;
  EXPECT_EQ(infos[0].name, "bytes");
  EXPECT_EQ(infos[0].path, "");
  const auto from_bytes = answer(*llm, "bytes");
  expect_same_bits(from_bytes, answer(*llm, "first"));
  expect_same_bits(from_bytes, answer(*llm, "file"));
}

TEST_F(AdapterBytesTest, AreReadAgainWhenTheyWereEvicted) {
  const auto a = files_.write("a", 16, 1), b = files_.write("b", 16, 2);
  options_.max_cpu_loras = 1;
  options_.max_loras = 1;
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(a)}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "b", .bytes = bytes_of(b)}).ok());
  const auto first = answer(*llm, "a");
  answer(*llm, "b");
  expect_same_bits(first, answer(*llm, "a"));
  EXPECT_GT(llm->adapters().at(0).loads, 1);
  EXPECT_EQ(llm->adapters().at(0).generation, 1);
}

TEST_F(AdapterBytesTest, ReplaceAndAreReplaced) {
  const auto one = files_.write("one", 4, 1), two = files_.write("two", 4, 2);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"one", one}).ok());
  ASSERT_TRUE(llm->load_adapter({"two", two}).ok());
  const auto with_one = answer(*llm, "one"), with_two = answer(*llm, "two");
  ASSERT_TRUE(llm->load_adapter({"a", one}).ok());
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(two)}, /*replace=*/true).ok());
  expect_same_bits(with_two, answer(*llm, "a"));
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes_of(one)}, /*replace=*/true).ok());
  expect_same_bits(with_one, answer(*llm, "a"));
  ASSERT_TRUE(llm->load_adapter({"a", two}, /*replace=*/true).ok());
  expect_same_bits(with_two, answer(*llm, "a"));
  EXPECT_EQ(llm->load_adapter({.name = "a", .bytes = bytes_of(one)}).code(), Code::kAlreadyExists);
}

TEST_F(AdapterBytesTest, AreHeldNoLongerThanTheirName) {
  const auto bytes = bytes_of(files_.write("a", 4, 1));
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({.name = "a", .bytes = bytes}).ok());
  answer(*llm, "a");
  ASSERT_TRUE(llm->unload_adapter("a").ok());
  for (int i = 0; i < 10'000 && bytes.use_count() > 1; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(bytes.use_count(), 1);
}

TEST_F(AdapterBytesTest, ThatAreWrongAreRefusedByName) {
  const auto path = files_.write("a", 4, 1);
  const auto good = bytes_of(path);
  const auto llm = load_or_die(options_);
  const auto refused = [&](AdapterBytes bytes) {
    return llm->load_adapter({.name = "a", .bytes = std::make_shared<AdapterBytes>(std::move(bytes))});
  };
  for (const auto& bytes : {AdapterBytes{good->config_json, "GGUF and more"}, AdapterBytes{good->config_json, ""},
                            AdapterBytes{good->config_json, good->tensors.substr(0, good->tensors.size() / 2)}}) {
    const Status status = refused(bytes);
    EXPECT_THAT(status.code(), AnyOf(Code::kCorrupt, Code::kTooLarge));
    EXPECT_THAT(status.message(), AllOf(HasSubstr("adapter 'a' (in memory)"), HasSubstr("the tensors in memory")));
  }
  const Status config = refused({"{\"r\":", good->tensors});
  EXPECT_EQ(config.code(), Code::kCorrupt);
  EXPECT_THAT(config.message(), HasSubstr("the config in memory"));
  EXPECT_EQ(llm->load_adapter({.name = "a", .path = path, .bytes = good}).code(), Code::kInvalidArgument);
  EXPECT_EQ(llm->load_adapter({.name = "a"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(llm->adapters().empty());
}

}  // namespace
}  // namespace choral::engine
