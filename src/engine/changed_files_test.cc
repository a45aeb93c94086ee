// Files that change while the engine loads or serves them, and adapters that are too large for their budget: an error of that
// load, and never of anybody else.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>

#include "engine/adapters/adapter_files_test.h"
#include "engine/adapters/registry_test.h"
#include "lora/store/packed_adapter_loader.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// A model in a folder of its own, to which something is done once the first of its weights is packed.
class ChangedModelTest : public ::testing::Test {
 protected:
  ChangedModelTest() {
    options_ = tiny_options();
    fs::copy(options_.model, folder_.path() / "model");
    options_.model = folder_ / "model";
    for (const auto& file : fs::directory_iterator(options_.model)) {
      fs::permissions(file, fs::perms::owner_all);
      fs::last_write_time(file, fs::last_write_time(file) - std::chrono::hours(1));
    }
  }
  fs::path last_shard() const { return fs::path(options_.model) / "model-00003-of-00003.safetensors"; }
  Status load_while(const std::function<void()>& change) {
    bool done = false;
    options_.on_progress = [&](const LoadProgress& progress) {
      if (progress.phase != "pack" || std::exchange(done, true)) return;
      change();
    };
    const Status status = LLM::load(options_).status();
    EXPECT_TRUE(done);
    return status;
  }
  void expect_refused(const std::function<void()>& change) {
    const Status refused = load_while(change);
    EXPECT_EQ(refused.code(), Code::kUnavailable) << refused.to_string();
    EXPECT_THAT(refused.message(), AllOf(HasSubstr(last_shard().string()), HasSubstr("changed while it was read")));
  }

  testing::TempDir folder_;
  EngineOptions options_;
};

TEST_F(ChangedModelTest, OneThatIsCutIsAnErrorOfTheLoad) {
  expect_refused([&] { fs::resize_file(last_shard(), 4096); });
}

TEST_F(ChangedModelTest, OneThatIsOverwrittenIsAnErrorOfTheLoad) {
  const auto size = fs::file_size(last_shard());
  expect_refused([&] { folder_.write("model/" + last_shard().filename().string(), std::string(size, '\0')); });
}

TEST_F(ChangedModelTest, OneThatIsReplacedByRenameIsServedAsItWas) {
  const Status served = load_while([&] { fs::rename(folder_.write("model/new", "nothing"), last_shard()); });
  EXPECT_TRUE(served.ok()) << served.to_string();
}

class AdapterBudgetTest : public ::testing::Test {
 protected:
  int64_t packed_bytes(const std::string& path) {
    platform::testing::CpuContext cpu;
    int64_t bytes = 0;
    lora::AdapterDescription described;
    const auto note = [&](int64_t needed) {
      bytes = needed;
      return Status();
    };
    EXPECT_TRUE(lora::PackedAdapterLoader(*cpu, files_.targets(), {}, 0).load(path, described, note).ok());
    return bytes;
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterBudgetTest, OneThatIsTooLargeIsRefusedBeforeItIsRead) {
  const auto small = files_.write("small", 2, 1), big = files_.write("big", 32, 2);
  const int64_t needed = packed_bytes(big);
  const auto words = AllOf(HasSubstr("'big'"), HasSubstr(fmt::format("{} bytes", needed)),
                           HasSubstr(fmt::format("{};", needed - 1)), HasSubstr("--adapter-memory"));
  options_.adapter_memory_bytes = needed - 1;
  {
    const auto llm = load_or_die(options_);
    ASSERT_TRUE(llm->load_adapter({"small", small}).ok());
    const Status refused = llm->load_adapter({"big", big});
    EXPECT_EQ(refused.code(), Code::kTooLarge) << refused.to_string();
    EXPECT_THAT(refused.message(), words);
    EXPECT_EQ(llm->adapters().size(), 1u);
    EXPECT_TRUE(llm->generate({with_adapters(greedy_request(random_prompt(9, 1), 2), {{"small"}})}).front().status.ok());
  }
  options_.adapters = {{"big", big}};
  const Status refused = LLM::load(options_).status();
  EXPECT_EQ(refused.code(), Code::kTooLarge) << refused.to_string();
  EXPECT_THAT(refused.message(), words);
  options_.adapter_memory_bytes = needed;
  EXPECT_NE(load_or_die(options_), nullptr);
}

// What the loader tells the engine, counted.
class Bell {
 public:
  std::function<void()> rope() {
    return [this] {
      const std::lock_guard lock(mutex_);
      ++rung_;
      changed_.notify_all();
    };
  }
  void wait_for(int rung) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return rung_ >= rung; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int rung_ = 0;
};

TEST_F(AdapterBudgetTest, TheLoaderDoesNotRunAheadOfTheEngine) {
  constexpr int kAdapters = 12;
  const auto path = files_.write("a", 8, 1);
  const int64_t bytes = packed_bytes(path);
  Bell bell;
  // A quarter of it is two adapters.
  const auto registry = make_registry(files_.targets(), {.load = {}, .root = "", .budget_bytes = 8 * bytes});
  registry->set_wake(bell.rope());
  for (int i = 0; i < kAdapters; ++i) {
    registry->request_load(std::make_shared<AdapterVersion>(VersionId{i + 1}, AdapterSpec{"a", path}));
  }
  std::vector<LoadedAdapter> taken;
  for (int seen = 0; seen < kAdapters;) {
    bell.wait_for(seen + 1);
    for (int i = 0; i < 8; ++i) packed_bytes(path);  // time for the loader to pack as many, if it would
    taken.clear();
    registry->take_loaded(taken);
    EXPECT_LE(taken.size(), 2u) << "packed adapters pile up";
    for (const auto& loaded : taken) EXPECT_TRUE(loaded.packed.ok()) << loaded.packed.status().message();
    seen += static_cast<int>(taken.size());
  }
  registry->set_wake({});
}

TEST_F(AdapterBudgetTest, ALoaderThatWaitsForTheEngineEndsWithIt) {
  const auto path = files_.write("a", 8, 1);
  const int64_t bytes = packed_bytes(path);
  for (const bool engine_ends_first : {false, true}) {
    Bell bell;
    const auto registry = make_registry(files_.targets(), {.load = {}, .root = "", .budget_bytes = bytes});
    registry->set_wake(bell.rope());
    for (int i = 0; i < 3; ++i) {
      registry->request_load(std::make_shared<AdapterVersion>(VersionId{i + 1}, AdapterSpec{"a", path}));
    }
    bell.wait_for(1);
    if (engine_ends_first) registry->set_wake({});
  }  // the registry's end waits for its loader
}

}  // namespace
}  // namespace choral::engine
