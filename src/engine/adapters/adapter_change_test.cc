// Files that change under a name, and requests that wait meanwhile: the rule of docs/adapters.md, "When files change".
#include <gmock/gmock.h>

#include <set>

#include "engine/adapters/adapter_files_test.h"
#include "io/mapped_file.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class AdapterChangeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.adapter_root = files_.root().string();
    answers_ = load_or_die(tiny_options());
  }
  static Request ask(std::vector<AdapterUse> adapters, int tokens = 8) {
    return with_adapters(greedy_request(random_prompt(70, 9), tokens), std::move(adapters));
  }
  static RequestOutput answer(LLM& llm, const std::string& name) { return llm.generate({ask({{name}})}).front(); }
  static AdapterInfo info_of(const LLM& llm, const std::string& name) {
    for (const auto& info : llm.adapters()) {
      if (info.name == name) return info;
    }
    ADD_FAILURE() << "no adapter " << name;
    return {};
  }
  fs::path tensors_of(const std::string& name) const { return files_.root() / name / "adapter_model.safetensors"; }

  // What an engine that knows nothing else answers with adapter 4, `seed`.
  RequestOutput expected(uint64_t seed) {
    const std::string name = std::to_string(seed);
    if (known_.insert(seed).second) {
      EXPECT_TRUE(answers_->load_adapter({name, known_files_.write(name, 4, seed)}).ok());
    }
    return answer(*answers_, name);
  }

  AdapterFiles files_, known_files_;
  std::unique_ptr<LLM> answers_;
  std::set<uint64_t> known_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterChangeTest, TheNextRequestGetsWhatTheFilesHoldNow) {
  const auto path = files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"given", path}).ok());
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    if (seed > 1) files_.write("a", 4, seed);  // in place: of the same size
    for (const char* name : {"a", "given"}) {
      expect_same_bits(expected(seed), answer(*llm, name));
      EXPECT_EQ(info_of(*llm, name).generation, static_cast<int>(seed)) << name;
    }
    EXPECT_EQ(info_of(*llm, "a").digest, info_of(*llm, "given").digest);
  }
  answer(*llm, "a");
  EXPECT_EQ(info_of(*llm, "a").loads, 1) << "files that did not change are read again";
}

TEST_F(AdapterChangeTest, ALinkInTheRootThatLeadsElsewhereIsAChange) {
  files_.write("v1", 4, 1);
  files_.write("v2", 4, 2);
  fs::create_directory_symlink("v1", files_.root() / "now");
  const auto llm = load_or_die(options_);
  expect_same_bits(expected(1), answer(*llm, "now"));
  fs::create_directory_symlink("v2", files_.root() / "next");
  fs::rename(files_.root() / "next", files_.root() / "now");
  expect_same_bits(expected(2), answer(*llm, "now"));
  EXPECT_THAT(info_of(*llm, "now").path, HasSubstr("v2"));

  fs::create_directory_symlink("/etc", files_.root() / "next");
  fs::rename(files_.root() / "next", files_.root() / "now");
  expect_same_bits(expected(2), answer(*llm, "now"));
  EXPECT_THAT(info_of(*llm, "now").error, HasSubstr("leads out of"));
}

TEST_F(AdapterChangeTest, WhatIsWrittenAnewWithTheSameContentIsTheSameGeneration) {
  files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  expect_same_bits(expected(1), answer(*llm, "a"));
  const auto before = info_of(*llm, "a");
  files_.write("a", 4, 1);
  expect_same_bits(expected(1), answer(*llm, "a"));
  const auto after = info_of(*llm, "a");
  EXPECT_EQ(after.digest, before.digest);
  EXPECT_EQ(after.generation, 1);
  EXPECT_EQ(after.loads, 2);
  EXPECT_EQ(after.requests, 2);
  EXPECT_EQ(llm->stats().adapter_bytes, before.size_bytes);
}

TEST_F(AdapterChangeTest, FilesThatCannotBeReadLeaveTheOldOnesInUse) {
  files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  answer(*llm, "a");
  fs::resize_file(tensors_of("a"), 5000);
  expect_same_bits(expected(1), answer(*llm, "a"));
  EXPECT_THAT(info_of(*llm, "a").error, HasSubstr("adapter_model.safetensors"));
  EXPECT_EQ(info_of(*llm, "a").state, AdapterState::kResident);
  EXPECT_EQ(info_of(*llm, "a").errors, 1);
  const int64_t loads = llm->stats().adapter_loads;
  expect_same_bits(expected(1), answer(*llm, "a"));
  EXPECT_EQ(llm->stats().adapter_loads, loads) << "files that were refused are read again though they are the same";

  fs::remove_all(files_.root() / "a");
  expect_same_bits(expected(1), answer(*llm, "a"));
  EXPECT_THAT(info_of(*llm, "a").error, HasSubstr("gone"));
  files_.write("a", 4, 2);
  expect_same_bits(expected(2), answer(*llm, "a"));
  EXPECT_EQ(info_of(*llm, "a").generation, 2) << "what could not be read counts as a content";
  EXPECT_EQ(info_of(*llm, "a").error, "");
}

TEST_F(AdapterChangeTest, WhatWasNeverReadIsNoContentOfTheName) {
  files_.write("a", 4, 1);
  fs::resize_file(tensors_of("a"), 5000);
  const auto llm = load_or_die(options_);
  EXPECT_EQ(answer(*llm, "a").status.code(), Code::kCorrupt);
  EXPECT_EQ(answer(*llm, "a").status.code(), Code::kCorrupt);
  const AdapterInfo failed = info_of(*llm, "a");
  EXPECT_EQ(failed.state, AdapterState::kFailed);
  EXPECT_THAT(failed.error, HasSubstr("adapter_model.safetensors"));
  EXPECT_EQ(failed.errors, 1);
  EXPECT_EQ(failed.loads, 1) << "files that could not be read are read again though they are the same";
  EXPECT_EQ(failed.requests, 2);
  EXPECT_EQ(failed.generation, 0);
  files_.write("a", 4, 2);
  expect_same_bits(expected(2), answer(*llm, "a"));
  EXPECT_EQ(info_of(*llm, "a").generation, 1);
  EXPECT_EQ(info_of(*llm, "a").error, "");
  EXPECT_EQ(info_of(*llm, "a").errors, failed.errors);
  EXPECT_EQ(info_of(*llm, "a").requests, 3);
  EXPECT_GE(info_of(*llm, "a").last_use_unix_s, failed.last_use_unix_s);

  files_.write("gone", 4, 3);
  fs::resize_file(tensors_of("gone"), 5000);
  EXPECT_EQ(answer(*llm, "gone").status.code(), Code::kCorrupt);
  EXPECT_TRUE(llm->unload_adapter("gone").ok());
  EXPECT_EQ(llm->adapters().size(), 1u) << "what was unloaded is told of";

  EXPECT_FALSE(llm->load_adapter({"b", "/no/such/folder"}).ok());
  ASSERT_TRUE(llm->load_adapter({"b", (files_.root() / "a").string()}).ok());
  EXPECT_EQ(info_of(*llm, "b").generation, 1);
}

TEST_F(AdapterChangeTest, TwoNamesWithOneContentChangeEachForItself) {
  files_.write("x", 4, 1);
  files_.write("y", 4, 1);
  const auto llm = load_or_die(options_);
  answer(*llm, "x");
  answer(*llm, "y");
  files_.write("x", 4, 2);
  expect_same_bits(expected(2), answer(*llm, "x"));
  expect_same_bits(expected(1), answer(*llm, "y"));
  EXPECT_EQ(info_of(*llm, "y").generation, 1);
  EXPECT_EQ(info_of(*llm, "y").loads, 1);
}

TEST_F(AdapterChangeTest, APinGoesOverToTheNewContent) {
  files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->pin_adapter("a", true).ok());
  const int64_t bytes = info_of(*llm, "a").size_bytes;
  files_.write("a", 4, 2);
  expect_same_bits(expected(2), answer(*llm, "a"));
  EXPECT_TRUE(info_of(*llm, "a").pinned);
  EXPECT_EQ(info_of(*llm, "a").state, AdapterState::kResident);
  llm->generate({ask({})});  // a step after the last user of the first
  EXPECT_EQ(llm->stats().adapter_bytes, bytes) << "the first content stays pinned";
}

// Two and a half adapters fit. Two running requests hold two, so that one for "a", which was in memory before, waits. The model's
// context is so long that those two run until they are cancelled.
class AdapterWaitTest : public AdapterChangeTest {
 protected:
  void SetUp() override {
    AdapterChangeTest::SetUp();
    lengthen_context();
    files_.write("a", 4, 1);
    for (const char* name : {"1", "2"}) files_.write(name, 4, 90 + static_cast<uint64_t>(*name));
    {
      const auto probe = load_or_die(options_);
      answer(*probe, "a");
      options_.adapter_memory_bytes = info_of(*probe, "a").size_bytes * 5 / 2;
    }
    llm_ = load_or_die(options_);
    expect_same_bits(expected(1), answer(*llm_, "a"));
  }
  void let_wait(std::vector<AdapterUse> adapters) {
    for (const char* name : {"1", "2"}) {
      auto stream = llm_->submit(ask({{name}}, 0));
      ASSERT_TRUE(stream.ok()) << stream.status().to_string();
      StreamEvent event;
      ASSERT_TRUE((*stream)->next(event));
      running_.push_back(std::move(*stream));
    }
    ASSERT_NE(info_of(*llm_, "a").state, AdapterState::kResident);
    auto stream = llm_->submit(ask(std::move(adapters)));
    ASSERT_TRUE(stream.ok());
    waiting_ = std::move(*stream);
  }
  RequestOutput let_go() {
    for (auto& stream : running_) stream->cancel();
    for (auto& stream : running_) {
      EXPECT_EQ(stream->wait().completions.at(0).finish_reason, FinishReason::kCancelled) << "it ended too early";
    }
    return waiting_->wait();
  }

  void lengthen_context() {
    fs::copy(options_.model, folder_.path() / "model");
    options_.model = folder_ / "model";
    auto config = io::read_whole_file(folder_ / "model/config.json", 1 << 20);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    const std::string_view context = "\"max_position_embeddings\": 512";
    ASSERT_NE(config->find(context), std::string::npos);
    fs::remove(folder_ / "model/config.json");  // a file of the source tree may be read-only
    folder_.write("model/config.json", config->replace(config->find(context) + context.size(), 0, "00"));
  }

  choral::testing::TempDir folder_;
  std::unique_ptr<LLM> llm_;
  std::vector<std::unique_ptr<ResponseStream>> running_;
  std::unique_ptr<ResponseStream> waiting_;
};

TEST_F(AdapterWaitTest, ItKeepsItsVersionWhileThatCanBeReadAgain) {
  let_wait({{"a"}});
  files_.write("a2", 4, 2);
  ASSERT_TRUE(llm_->unload_adapter("a").ok());
  ASSERT_TRUE(llm_->load_adapter({"a", (files_.root() / "a2").string()}).ok());
  expect_same_bits(expected(1), let_go());
  expect_same_bits(expected(2), answer(*llm_, "a"));
}

TEST_F(AdapterWaitTest, ItGoesOverToTheChangedFiles) {
  let_wait({{"a"}});
  files_.write("a", 4, 2);
  expect_same_bits(expected(2), let_go());
  EXPECT_EQ(info_of(*llm_, "a").generation, 2);
  EXPECT_EQ(info_of(*llm_, "a").error, "");
  expect_same_bits(expected(2), answer(*llm_, "a"));
  EXPECT_EQ(info_of(*llm_, "a").generation, 2) << "one content was counted twice";
}

TEST_F(AdapterWaitTest, ItGoesOverToWhatReplacedIts) {
  ASSERT_TRUE(llm_->load_adapter({"given", (files_.root() / "a").string()}).ok());
  let_wait({{"given"}});
  ASSERT_TRUE(llm_->load_adapter({"given", files_.write("other", 4, 2)}, /*replace=*/true).ok());
  fs::remove_all(files_.root() / "a");
  expect_same_bits(expected(2), let_go());
}

TEST_F(AdapterWaitTest, InAMixOnlyTheChangedOneIsAnother) {
  let_wait({{"a", 0.5F}, {"1", 0.5F}});
  files_.write("a", 4, 2);
  const auto fresh = load_or_die(options_);
  expect_same_bits(fresh->generate({ask({{"a", 0.5F}, {"1", 0.5F}})}).front(), let_go());
}

TEST_F(AdapterWaitTest, WithoutItsNameItFailsAndSaysSo) {
  let_wait({{"a"}});
  ASSERT_TRUE(llm_->unload_adapter("a").ok());
  files_.write("a", 4, 2);
  const auto output = let_go();
  EXPECT_EQ(output.status.code(), Code::kUnavailable) << output.status.to_string();
  EXPECT_THAT(output.status.message(), AllOf(HasSubstr("'a' is gone"), HasSubstr("changed")));
  expect_same_bits(expected(2), answer(*llm_, "a"));
  EXPECT_EQ(info_of(*llm_, "a").generation, 2);
}

TEST_F(AdapterWaitTest, FilesThatCannotBeReadAreItsError) {
  let_wait({{"a"}});
  fs::resize_file(tensors_of("a"), 5000);
  const auto output = let_go();
  EXPECT_EQ(output.status.code(), Code::kCorrupt) << output.status.to_string();
  EXPECT_EQ(answer(*llm_, "a").status.code(), Code::kCorrupt);
  files_.write("a", 4, 1);
  expect_same_bits(expected(1), answer(*llm_, "a"));
  EXPECT_EQ(info_of(*llm_, "a").generation, 1);
}

TEST_F(AdapterWaitTest, RequestsAroundTheChangeAreEachWhollyOneVersions) {
  let_wait({{"a"}});
  files_.write("a", 4, 2);
  auto after = llm_->submit(ask({{"a"}}));
  ASSERT_TRUE(after.ok());
  expect_same_bits(expected(2), let_go());
  expect_same_bits(expected(2), (*after)->wait());
}

}  // namespace
}  // namespace choral::engine
