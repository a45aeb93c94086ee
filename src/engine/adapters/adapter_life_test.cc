// From load to unload: names, versions, budgets, failures that stay with their request, and all of it at once under load.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/unix_clock.h"
#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class AdapterLifeTest : public ::testing::Test {
 protected:
  static Request ask(const std::string& adapter, int tokens = 8) {
    auto request = greedy_request(random_prompt(70, 9), tokens);
    if (!adapter.empty()) request.adapters = {{adapter}};
    return request;
  }
  static RequestOutput answer(LLM& llm, const std::string& adapter) { return llm.generate({ask(adapter)}).front(); }
  static AdapterInfo info_of(const LLM& llm, const std::string& name) {
    for (const auto& info : llm.adapters()) {
      if (info.name == name) return info;
    }
    ADD_FAILURE() << "no adapter " << name;
    return {};
  }

  AdapterFiles files_;
  EngineOptions options_ = tiny_options();
};

TEST_F(AdapterLifeTest, UnloadHidesTheNameAndLetsRunningRequestsFinish) {
  const auto path = files_.write("a", 4, 1);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"a", path}).ok());
  const auto whole = llm->generate({ask("a", 200)}).front();
  auto stream = llm->submit(ask("a", 200));
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  ASSERT_TRUE((*stream)->next(event));
  ASSERT_TRUE(llm->unload_adapter("a").ok());
  const auto refused = llm->submit(ask("a"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), Code::kNotFound);
  EXPECT_TRUE(llm->adapters().empty());
  expect_same_bits(whole, (*stream)->wait());
  EXPECT_EQ(llm->unload_adapter("a").code(), Code::kNotFound);
  answer(*llm, "");  // a step of the engine after the last user
  EXPECT_EQ(llm->stats().adapter_bytes, 0) << "memory of an adapter without name and users stays";
}

TEST_F(AdapterLifeTest, ItsLastUseIsKnown) {
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"a", files_.write("a", 4, 1)}).ok());
  EXPECT_EQ(info_of(*llm, "a").last_use_unix_s, 0);
  const double begin = unix_s();
  answer(*llm, "a");
  const double once = info_of(*llm, "a").last_use_unix_s;
  EXPECT_GE(once, begin);
  answer(*llm, "");
  const double settled = info_of(*llm, "a").last_use_unix_s;  // the end of the request before may have come meanwhile
  answer(*llm, "");
  EXPECT_EQ(info_of(*llm, "a").last_use_unix_s, settled) << "a request of the base counts";
  answer(*llm, "a");
  EXPECT_GT(info_of(*llm, "a").last_use_unix_s, settled);
}

TEST_F(AdapterLifeTest, ReplacementServesNewRequestsOnly) {
  const auto first = files_.write("v1", 4, 1), second = files_.write("v2", 4, 2);
  const auto fresh = load_or_die(options_);
  ASSERT_TRUE(fresh->load_adapter({"a", second}).ok());
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"a", first}).ok());
  const auto old = llm->generate({ask("a", 200)}).front();
  auto stream = llm->submit(ask("a", 200));
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(llm->load_adapter({"a", second}).code(), Code::kAlreadyExists);
  ASSERT_TRUE(llm->load_adapter({"a", second}, /*replace=*/true).ok());
  expect_same_bits(answer(*fresh, "a"), answer(*llm, "a"));  // and no KV of the first version
  expect_same_bits(old, (*stream)->wait());
  EXPECT_EQ(info_of(*llm, "a").generation, 2);
}

TEST_F(AdapterLifeTest, EqualContentIsInMemoryOnce) {
  const auto one = files_.write("one", 8, 5), same = files_.write("same", 8, 5), other = files_.write("other", 8, 6);
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"x", one}).ok());
  answer(*llm, "x");
  const int64_t bytes = llm->stats().adapter_bytes;
  EXPECT_GT(bytes, 0);
  ASSERT_TRUE(llm->load_adapter({"y", same}).ok());
  expect_same_bits(answer(*llm, "x"), answer(*llm, "y"));
  EXPECT_EQ(llm->stats().adapter_bytes, bytes);
  EXPECT_EQ(info_of(*llm, "x").digest, info_of(*llm, "y").digest);
  ASSERT_TRUE(llm->load_adapter({"z", other}).ok());
  answer(*llm, "z");
  EXPECT_EQ(llm->stats().adapter_bytes, 2 * bytes);
}

TEST_F(AdapterLifeTest, ASmallBudgetEvictsAndLoadsAgain) {
  std::vector<RequestOutput> expected;
  {
    const auto llm = load_or_die(options_);
    for (int i = 0; i < 6; ++i) {
      ASSERT_TRUE(llm->load_adapter({std::to_string(i), files_.write(std::to_string(i), 4, 10 + static_cast<uint64_t>(i))}).ok());
      expected.push_back(answer(*llm, std::to_string(i)));
    }
    options_.adapter_memory_bytes = info_of(*llm, "0").size_bytes * 5 / 2;
  }
  options_.adapter_root = files_.root().string();
  const auto llm = load_or_die(options_);
  for (int round = 0; round < 3; ++round) {
    std::vector<Request> all;
    for (int i = 0; i < 6; ++i) all.push_back(ask(std::to_string(i)));
    const auto outputs = llm->generate(all);
    for (size_t i = 0; i < 6; ++i) expect_same_bits(expected[i], outputs[i]);
  }
  EXPECT_GT(llm->stats().adapter_evictions, 0);
  EXPECT_LE(llm->stats().adapter_bytes, options_.adapter_memory_bytes);
}

TEST_F(AdapterLifeTest, AnAdapterOverTheBudgetIsRefused) {
  options_.adapter_memory_bytes = 1000;
  options_.adapter_root = files_.root().string();
  files_.write("big", 64, 1);
  const auto llm = load_or_die(options_);
  const auto output = answer(*llm, "big");
  EXPECT_EQ(output.status.code(), Code::kTooLarge) << output.status.to_string();
  EXPECT_THAT(output.status.message(), HasSubstr("--adapter-memory"));
  EXPECT_TRUE(answer(*llm, "").status.ok());
}

TEST_F(AdapterLifeTest, TheRootIsAJailAndNamesAreSuggested) {
  files_.write("pirate", 4, 1);
  options_.adapter_root = files_.root().string();
  const auto llm = load_or_die(options_);
  EXPECT_TRUE(answer(*llm, "pirate").status.ok());
  EXPECT_EQ(llm->stats().adapter_loads, 1) << "asked for by the registry, and again by the engine";
  const auto wrong = llm->submit(ask("pirat"));
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.status().message(), HasSubstr("'pirate'"));
  for (const char* name : {"../pirate", "/etc", ".", "", "pirate/..", "pirate/../../x"}) {
    EXPECT_FALSE(llm->submit(ask("pirate")).ok() && llm->submit(with_adapters(ask(""), {{name}})).ok()) << name;
  }
  std::filesystem::create_directory_symlink("/", files_.root() / "out");
  EXPECT_FALSE(llm->submit(with_adapters(ask(""), {{"out/etc"}})).ok());
}

TEST_F(AdapterLifeTest, ABadAdapterFailsItsOwnRequestOnly) {
  files_.write("good", 4, 1);
  std::filesystem::resize_file(std::filesystem::path(files_.write("bad", 4, 2)) / "adapter_model.safetensors", 5000);
  options_.adapter_root = files_.root().string();
  const auto llm = load_or_die(options_);
  const auto outputs = llm->generate({ask("good"), ask("bad"), ask("")});
  EXPECT_TRUE(outputs[0].status.ok());
  EXPECT_TRUE(outputs[2].status.ok());
  EXPECT_EQ(outputs[1].status.code(), Code::kCorrupt) << outputs[1].status.to_string();
  EXPECT_THAT(outputs[1].status.message(), HasSubstr("adapter_model.safetensors"));
  files_.write("bad", 4, 2);  // mended: the next request tries again
  EXPECT_TRUE(answer(*llm, "bad").status.ok());
  EXPECT_FALSE(llm->load_adapter({"none", files_.root().string() + "/missing"}).ok());
}

TEST_F(AdapterLifeTest, ARequestForAColdAdapterCanBeCancelled) {
  files_.write("cold", 64, 1);
  options_.adapter_root = files_.root().string();
  const auto llm = load_or_die(options_);
  auto stream = llm->submit(ask("cold", 400));
  ASSERT_TRUE(stream.ok());
  (*stream)->cancel();
  EXPECT_EQ((*stream)->wait().completions.at(0).finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(answer(*llm, "cold").status.ok());
}

// The budget of these holds two adapters and a half, of which one may be pinned.
class AdapterPinTest : public AdapterLifeTest {
 protected:
  void SetUp() override {
    for (int i = 0; i < 6; ++i) files_.write(std::to_string(i), 4, 10 + static_cast<uint64_t>(i));
    options_.adapter_root = files_.root().string();
    const auto probe = load_or_die(options_);
    answer(*probe, "0");
    options_.adapter_memory_bytes = info_of(*probe, "0").size_bytes * 5 / 2;
  }
  std::string path(const std::string& name) const { return (files_.root() / name).string(); }
};

TEST_F(AdapterPinTest, PinnedAdaptersStay) {
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->pin_adapter("0", true).ok());
  EXPECT_TRUE(info_of(*llm, "0").pinned);
  EXPECT_EQ(info_of(*llm, "0").state, AdapterState::kResident) << "the call returned before it was so";
  for (int round = 0; round < 2; ++round) {
    for (int i = 1; i < 6; ++i) answer(*llm, std::to_string(i));
  }
  EXPECT_EQ(info_of(*llm, "0").loads, 1) << "a pinned adapter was dropped";
  EXPECT_TRUE(info_of(*llm, "0").pinned);
}

TEST_F(AdapterPinTest, ARefusedPinIsTheCallersError) {
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->pin_adapter("0", true).ok());
  const Status refused = llm->pin_adapter("1", true);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted) << refused.to_string();
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("adapter '1'"), HasSubstr("--adapter-memory"), HasSubstr("unpin")));
  EXPECT_FALSE(info_of(*llm, "1").pinned);
  EXPECT_THAT(info_of(*llm, "1").error, HasSubstr("--adapter-memory"));
  EXPECT_TRUE(answer(*llm, "1").status.ok()) << "it is served all the same";
  ASSERT_TRUE(llm->pin_adapter("0", false).ok());
  EXPECT_FALSE(info_of(*llm, "0").pinned);
  ASSERT_TRUE(llm->pin_adapter("1", true).ok());
  EXPECT_TRUE(info_of(*llm, "1").pinned);
  EXPECT_TRUE(info_of(*llm, "1").error.empty());
  ASSERT_TRUE(llm->unload_adapter("1").ok());  // its pin goes with it
  EXPECT_TRUE(llm->pin_adapter("2", true).ok());
  EXPECT_EQ(llm->pin_adapter("none", true).code(), Code::kNotFound);
}

TEST_F(AdapterPinTest, NoMoreAreInMemoryThanMaxCpuLorasAllows) {
  options_.adapter_memory_bytes = 0;
  options_.max_cpu_loras = 2;
  const auto llm = load_or_die(options_);
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(answer(*llm, std::to_string(i)).status.ok()) << i;
  EXPECT_EQ(stats_at_rest(*llm).adapter_bytes, 2 * info_of(*llm, "5").size_bytes);
  const auto mixed = [&](const std::vector<AdapterUse>& uses) {
    return llm->generate({with_adapters(greedy_request(random_prompt(9, 1), 2), uses)}).front().status;
  };
  EXPECT_TRUE(mixed({{"0"}, {"1"}}).ok());
  const Status many = mixed({{"0"}, {"1"}, {"2"}});
  EXPECT_EQ(many.code(), Code::kTooLarge) << many.to_string();
  EXPECT_THAT(many.message(), AllOf(HasSubstr("3 adapters"), HasSubstr("--max-cpu-loras allows (2)"), HasSubstr("mix fewer")));
  ASSERT_TRUE(llm->pin_adapter("0", true).ok());
  const Status pinned = llm->pin_adapter("1", true);
  EXPECT_EQ(pinned.code(), Code::kResourceExhausted) << pinned.to_string();
  EXPECT_THAT(pinned.message(), HasSubstr("of the 2 that --max-cpu-loras allows in memory 1 may be"));
  EXPECT_TRUE(answer(*llm, "2").status.ok()) << "pins leave room for one";
}

TEST_F(AdapterPinTest, APinThatCanNeverBeEndsAndLoadsOnce) {
  options_.adapter_memory_bytes = 1000;
  const auto llm = load_or_die(options_);
  const Status refused = llm->pin_adapter("0", true);
  EXPECT_EQ(refused.code(), Code::kTooLarge) << refused.to_string();
  EXPECT_TRUE(answer(*llm, "").status.ok());
  EXPECT_EQ(llm->stats().adapter_loads, 1) << "it is loaded again and again";
  EXPECT_EQ(llm->pin_adapter("0", true).code(), Code::kTooLarge);
  EXPECT_TRUE(answer(*llm, "").status.ok());
  EXPECT_EQ(llm->stats().adapter_loads, 1) << "its files are the same";

  std::filesystem::resize_file(files_.root() / "3" / "adapter_model.safetensors", 5000);
  EXPECT_EQ(llm->pin_adapter("3", true).code(), Code::kCorrupt);
}

TEST_F(AdapterPinTest, ALoadThatCannotBePinnedLeavesTheNameAsItWas) {
  const auto llm = load_or_die(options_);
  ASSERT_TRUE(llm->load_adapter({"a", path("0"), /*pinned=*/true}).ok());
  EXPECT_TRUE(info_of(*llm, "a").pinned);
  EXPECT_EQ(llm->load_adapter({"b", path("1"), /*pinned=*/true}).code(), Code::kResourceExhausted);
  EXPECT_EQ(llm->adapters().size(), 1u);
  ASSERT_TRUE(llm->load_adapter({"b", path("1")}).ok());
  const auto old = answer(*llm, "b");
  EXPECT_EQ(llm->load_adapter({"b", path("2"), /*pinned=*/true}, /*replace=*/true).code(), Code::kResourceExhausted);
  expect_same_bits(old, answer(*llm, "b"));
  ASSERT_TRUE(llm->load_adapter({"a", path("2")}, /*replace=*/true).ok());
  EXPECT_FALSE(info_of(*llm, "a").pinned);
  EXPECT_TRUE(llm->pin_adapter("b", true).ok()) << "the pin of what was replaced stayed";
  options_.adapters = {{"a", path("0"), true}, {"b", path("1"), true}};
  const auto refused = LLM::load(options_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("adapter 'b'"));
}

TEST_F(AdapterPinTest, CallersOfSeveralThreadsAreAllAnswered) {
  const auto llm = load_or_die(options_);
  std::vector<std::thread> callers;
  std::atomic<int> pinned{0};
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        const std::string name = std::to_string(i);
        if (!llm->pin_adapter(name, true).ok()) continue;
        ++pinned;
        EXPECT_TRUE(llm->pin_adapter(name, false).ok());
      }
    });
  }
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(answer(*llm, std::to_string(i)).status.ok());
  for (auto& caller : callers) caller.join();
  EXPECT_GT(pinned, 0);
  for (const auto& info : llm->adapters()) EXPECT_FALSE(info.pinned) << info.name;
}

// Requests, loads, replacements and unloads from several threads: each answer is wholly one version's.
TEST_F(AdapterLifeTest, UnderLoadVersionsNeverMix) {
  const std::string paths[2] = {files_.write("v1", 4, 1), files_.write("v2", 8, 2)};
  const auto llm = load_or_die(options_);
  std::vector<RequestOutput> known;
  for (const auto& path : paths) {
    ASSERT_TRUE(llm->load_adapter({"a", path}, true).ok());
    known.push_back(answer(*llm, "a"));
  }
  const auto base = answer(*llm, "");
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::thread changer([&] {
    for (int i = 0; !stop; ++i) {
      if (i % 5 == 4) (void)llm->unload_adapter("a").ok();
      (void)llm->load_adapter({"a", paths[i % 2]}, true).ok();
    }
  });
  std::vector<std::thread> users;
  for (int u = 0; u < 3; ++u) {
    users.emplace_back([&, u] {
      for (int i = 0; i < 25; ++i) {
        const bool adapted = (i + u) % 3 != 0;
        const auto output = answer(*llm, adapted ? "a" : "");
        if (adapted && output.status.code() == Code::kNotFound) continue;  // it was unloaded just now
        ASSERT_TRUE(output.status.ok()) << output.status.to_string();
        ++answered;
        const auto& got = output.completions.at(0);
        const auto same = [&](const RequestOutput& other) {
          const auto& want = other.completions.at(0);
          return got.token_ids == want.token_ids && got.logprobs.back().chosen.logprob == want.logprobs.back().chosen.logprob;
        };
        EXPECT_TRUE(adapted ? same(known[0]) || same(known[1]) : same(base));
      }
    });
  }
  for (auto& user : users) user.join();
  stop = true;
  changer.join();
  EXPECT_GT(answered, 20);
}

}  // namespace
}  // namespace choral::engine
