// Each operator new that an engine asks for in a request's life finds no memory once: the process lives, whoever is refused is
// told so, others answer as ever, and nothing is left behind, in the engine's counts or in the heap.
#include <gmock/gmock.h>

#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

using choral::testing::stop_failing_nth_allocation;

class EveryAllocation : public ::testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options = tiny_options();
    options.max_cpu_loras = 1;  // so that who names another adapter drops one and loads one
    options.max_loras = 1;
    return options;
  }
  static Request small_request() { return greedy_request(random_prompt(20, 1), 6); }
  static Request of_adapter(const std::string& name) { return with_adapters(small_request(), {{name}}); }

  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) {
      const Status loaded = llm_->load_adapter({name, write(name)}, false);
      ASSERT_TRUE(loaded.ok()) << loaded.message();
    }
    want_ = llm_->generate({small_request()}).front();
    for (const char* name : {"a", "b", "c"}) want_of_[name] = llm_->generate({of_adapter(name)}).front();
  }

  // Of one layer, so that little is asked for in a load.
  std::string write(const std::string& name) const {
    const auto path = files_.root() / name;
    const auto all = files_.targets();
    const auto layer = std::find_if(all.begin(), all.end(), [](const auto& t) { return t.kind == lora::TargetKind::kLinear; });
    const auto size =
        synthetic::write_adapter(path, {&*layer, 1}, {.rank = 2, .dtype = DType::kF32, .seed = static_cast<uint64_t>(name[0])});
    CHORAL_CHECK(size.ok(), size.status().message());
    std::ofstream(path / "adapter_config.json")
        << R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": "model\\.layers\\.0\\.self_attn\\.[qkv]_proj"})";
    return path.string();
  }
  void expect_as_ever_or_refused(const RequestOutput& output, const RequestOutput& want) {
    if (output.status.ok()) return expect_same_bits(output, want);
    ++refused_;
    EXPECT_EQ(output.status.code(), Code::kResourceExhausted) << output.status.to_string();
  }
  void expect_as_ever_or_refused(const Status& status) {
    if (status.ok()) return;
    ++refused_;
    EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  }
  void expect_at_rest() {
    ASSERT_TRUE(llm_->check_health(std::chrono::minutes(5)).ok());
    const auto stats = stats_at_rest(*llm_);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.waiting_tokens, 0);
    EXPECT_EQ(stats.kv_blocks_free, stats.kv_blocks_total);
  }

  // Runs the scenario, which says whether its nth news was failed, until there are fewer; twice: what the second round does not
  // give back is lost.
  void fail_each(FunctionRef<bool(int64_t nth)> run, int64_t least = 10) {
    for (const bool counted : {false, true}) {
      int64_t nth = 0, kept = 0;
      for (bool failed = true; failed && !HasFailure();) {
        choral::testing::start_counting_allocations();
        failed = run(++nth);
        expect_same_bits(llm_->generate({small_request()}).front(), want_);
        expect_at_rest();
        const auto count = choral::testing::stop_counting_allocations();
        kept += count.allocations - count.frees;
      }
      EXPECT_GT(nth, least) << "the scenario asks for memory";
      if (counted) {
        EXPECT_LE(kept, kKept) << "after " << nth << " failures";
      }
    }
  }

  static constexpr int64_t kKept = 2;  // room that a list keeps for later

  AdapterFiles files_;
  std::unique_ptr<LLM> llm_ = load_or_die(options());
  RequestOutput want_;
  std::map<std::string, RequestOutput> want_of_;
  int refused_ = 0;
};

TEST_F(EveryAllocation, OfARequestOfTheBase) {
  fail_each([this](int64_t nth) {
    choral::testing::fail_nth_allocation_of_others(nth);
    const auto outputs = llm_->generate({small_request(), small_request()});
    const bool failed = stop_failing_nth_allocation();
    for (const auto& output : outputs) expect_as_ever_or_refused(output, want_);
    return failed;
  });
  EXPECT_GT(refused_, 0) << "no request was refused";
}

TEST_F(EveryAllocation, OfARequestWhoseAdapterMustCome) {
  fail_each([this](int64_t nth) {
    const std::string name(1, static_cast<char>('a' + nth % 3));
    choral::testing::fail_nth_allocation_of_others(nth);
    const auto output = llm_->generate({of_adapter(name)}).front();
    const bool failed = stop_failing_nth_allocation();
    expect_as_ever_or_refused(output, want_of_[name]);
    return failed;
  });
}

// Another factor each time, of an adapter that is there: nobody noted anything of it before.
TEST_F(EveryAllocation, OfARequestWhoseMixIsNew) {
  int asked = 0;
  const auto request = [&] { return with_adapters(small_request(), {{"a", 1.0F / static_cast<float>(++asked + 1)}}); };
  fail_each([&](int64_t nth) {
    const auto new_one = request();
    choral::testing::fail_nth_allocation_of_others(nth);
    const auto output = llm_->generate({new_one}).front();
    const bool failed = stop_failing_nth_allocation();
    expect_as_ever_or_refused(output.status);
    if (output.status.ok()) expect_same_bits(output, llm_->generate({new_one}).front());
    return failed;
  });
}

// Two that cannot be in memory together, so that one waits for the other's end.
TEST_F(EveryAllocation, OfRequestsThatWaitForRoom) {
  fail_each([this](int64_t nth) {
    choral::testing::fail_nth_allocation_of_others(nth);
    const auto outputs = llm_->generate({of_adapter("a"), of_adapter("b")});
    const bool failed = stop_failing_nth_allocation();
    expect_as_ever_or_refused(outputs[0], want_of_["a"]);
    expect_as_ever_or_refused(outputs[1], want_of_["b"]);
    return failed;
  });
}

// The loader's queue asks for a piece of half a kilobyte, and that seldom: in one of some twenty loads.
TEST_F(EveryAllocation, OfTheQueueOfLoads) {
  constexpr size_t kLeast = 400, kSpare = size_t{1} << 20;
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const std::string name(1, static_cast<char>('a' + round % 3));
    choral::testing::fail_allocations_of_others_until(kLeast, kSpare);
    const auto stream = llm_->submit(of_adapter(name));
    const Status turned = llm_->check_health(std::chrono::minutes(5));  // so it was taken in, or refused
    choral::testing::fail_allocations_of_others(0);
    ASSERT_TRUE(stream.ok() && turned.ok());
    expect_as_ever_or_refused((*stream)->wait(), want_of_[name]);
    expect_same_bits(llm_->generate({small_request()}).front(), want_);
    expect_at_rest();
  }
}

TEST_F(EveryAllocation, OfALoad) {
  const AdapterSpec spec{"new", write("new")};
  fail_each([&](int64_t nth) {
    choral::testing::fail_nth_allocation_of_others(nth);
    const Status loaded = llm_->load_adapter(spec, false);
    const bool failed = stop_failing_nth_allocation();
    expect_as_ever_or_refused(loaded);
    if (!loaded.ok()) return failed;
    const Status unloaded = llm_->unload_adapter("new");
    EXPECT_TRUE(unloaded.ok()) << unloaded.message();
    return failed;
  });
}

TEST_F(EveryAllocation, OfTheEndOfWhoIsCancelled) {
  fail_each(
      [this](int64_t nth) {
        auto stream = llm_->submit(greedy_request(random_prompt(20, 1), 400));
        CHORAL_CHECK(stream.ok(), stream.status().message());
        StreamEvent event;
        EXPECT_TRUE((*stream)->next(event));
        choral::testing::fail_nth_allocation_of_others(nth);
        (*stream)->cancel();
        const auto output = (*stream)->wait();
        const Status turned = llm_->check_health(std::chrono::minutes(5));
        const bool failed = stop_failing_nth_allocation();
        EXPECT_TRUE(turned.ok()) << turned.message();
        if (!output.status.ok()) expect_as_ever_or_refused(output.status);
        return failed;
      },
      /*least=*/1);
}

// The caller's own threads, too.
TEST_F(EveryAllocation, OfWhoSubmitsAndGoes) {
  fail_each([this](int64_t nth) {
    auto request = small_request();
    choral::testing::fail_nth_allocation(nth);
    Status status = llm_->submit(std::move(request)).status();
    const bool failed = stop_failing_nth_allocation();
    expect_as_ever_or_refused(status);
    return failed;
  });
}

}  // namespace
}  // namespace choral::engine
