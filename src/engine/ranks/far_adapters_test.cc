// Adapters as a rank of another process reads them: beside what it does, of the files that the first one read.
#include "engine/ranks/far_adapters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "engine/tiny_model_test.h"
#include "engine/uniproc_executor.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using ::testing::HasSubstr;

class FarAdaptersTest : public ::testing::Test {
 protected:
  FarAdaptersTest() {
    EngineOptions options = tiny_options();
    auto files = open_model_files(options);
    CHORAL_CHECK(files.ok(), files.status().message());
    auto executor = UniprocExecutor::load(options, *files);
    CHORAL_CHECK(executor.ok(), executor.status().message());
    executor_ = std::move(*executor);
    auto made = FarAdapters::make(executor_->facts(), {.config = executor_->facts().lora_config});
    CHORAL_CHECK(made.ok(), made.status().message());
    adapters_ = std::move(*made);
    platform::testing::CpuContext cpu(1);
    lora::AdapterDescription described;
    const auto there =
        lora::PackedAdapterLoader(*cpu, executor_->facts().lora_targets, {.config = executor_->facts().lora_config}, 0)
            .load(lora::AdapterSource(kPath), described, [](int64_t) { return Status(); });
    CHORAL_CHECK(there.ok(), there.status().message());
    digest_ = (*there)->digest();
  }

  FarVoice voice(int key, Sha256Digest digest) const {
    return {lora::AdapterKey(key), {{.path = kPath, .digest = digest, .replaces = false, .factor = 0.5F}}};
  }
  void wait_until_read(const FarVoice& voice) {
    while (!adapters_->prepare(voice)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  const std::string kPath = testing::test_data("/lora/tiny-llama3-lora-all");
  Sha256Digest digest_{};
  std::unique_ptr<UniprocExecutor> executor_;
  std::unique_ptr<FarAdapters> adapters_;
};

TEST_F(FarAdaptersTest, ComeBesideWhatTheRankDoes) {
  EXPECT_FALSE(adapters_->prepare(voice(1, digest_))) << "it is read from now on";
  wait_until_read(voice(1, digest_));
  EXPECT_TRUE(adapters_->prepare(voice(2, digest_))) << "the same adapter";
  const auto made = adapters_->voice_of(voice(2, digest_));
  ASSERT_TRUE(made.ok()) << made.status().message();
  ASSERT_EQ(made->size(), 1U);
  EXPECT_EQ(made->front().factor, 0.5F);
  EXPECT_EQ(made->front().adapter->digest(), digest_);
}

TEST_F(FarAdaptersTest, AreWaitedForByWhoNeedsThemAtOnce) {
  const auto made = adapters_->voice_of(voice(1, digest_));
  EXPECT_TRUE(made.ok()) << made.status().message();
}

TEST_F(FarAdaptersTest, OfOtherFilesAreAnErrorThatIsForgotten) {
  Sha256Digest other = digest_;
  other[0] ^= 1;
  wait_until_read(voice(1, other));
  EXPECT_THAT(adapters_->voice_of(voice(1, other)).status().message(), HasSubstr("give every rank the same files"));
  EXPECT_FALSE(adapters_->prepare(voice(1, other))) << "its files are read again";
}

TEST_F(FarAdaptersTest, EndWhileOneIsRead) { adapters_->prepare(voice(1, digest_)); }

}  // namespace
}  // namespace choral::engine
