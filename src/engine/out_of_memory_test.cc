// Memory that cannot be had ends what needed it, with resource_exhausted, and nothing else: not the process, not the requests
// that come after. The test's own thread is spared, so that only the engine's threads find none.
#include <thread>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"
#include "support/allocation_counter.h"

namespace choral::engine {
namespace {

class Shortage {
 public:
  // Of memory in one piece.
  explicit Shortage(size_t least_bytes) { choral::testing::fail_allocations_of_others(least_bytes); }
  ~Shortage() { choral::testing::fail_allocations_of_others(0); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
};

constexpr size_t kSpare = size_t{1} << 20;  // at most what the engine and its loaders spare

Request small_request() { return greedy_request(random_prompt(20, 1), 8); }

void expect_out_of_memory(const Status& status, std::string_view what) {
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("no more memory"), std::string::npos) << status.message();
}

TEST(OutOfMemory, EndsTheRequestThatCannotBeTakenIn) {
  const auto llm = load_or_die(tiny_options());
  const auto want = llm->generate({small_request()}).front();
  auto long_one = greedy_request(random_prompt(20, 2), 490);
  const Shortage shortage(480 * sizeof(int32_t));  // its list of tokens is longer
  const auto outputs = llm->generate({small_request(), long_one, small_request()});
  expect_out_of_memory(outputs[1].status, "the request cannot be taken in");
  expect_same_bits(outputs[0], want);
  expect_same_bits(outputs[2], want);
}

TEST(OutOfMemory, EndsTheStepThatCannotBeComputedAndNoOther) {
  const auto llm = load_or_die(tiny_options());
  const auto want = llm->generate({small_request()}).front();
  auto wide = greedy_request(random_prompt(400, 3), 4);
  wide.sampling.prompt_logprobs = 1;  // a list that grows while the step computes
  for (int round = 0; round < 3; ++round) {
    const Shortage shortage(256 * sizeof(PositionLogprobs));
    expect_out_of_memory(llm->generate({wide}).front().status, "the step cannot be computed");
    expect_same_bits(llm->generate({small_request()}).front(), want);
  }
  EXPECT_TRUE(llm->generate({wide}).front().status.ok());
  while (llm->stats().running > 0) std::this_thread::yield();  // nobody is left behind
}

// The worker's copy is made when the request's turn comes, long after it was taken in.
TEST(OutOfMemory, EndsTheRequestThatCannotBeBegunAndNotItsNeighbour) {
  auto options = tiny_options();
  options.max_num_seqs = 2;
  const auto neighbour = greedy_request(random_prompt(20, 1), 480);
  const auto want = load_or_die(options)->generate({neighbour}).front();
  GatedEngine engine(options);
  const auto goes_on = engine.submit(neighbour), leaves = engine.submit(neighbour);
  const auto waits = engine.submit(greedy_request(random_prompt(20, 2), 490));
  engine.gate().wait_for_asked(1);
  engine.gate().allow(1);
  engine.gate().wait_for_asked(2);
  ASSERT_EQ(engine.stats().running, 2);
  ASSERT_EQ(engine.stats().waiting, 1);
  const Shortage shortage(480 * sizeof(int32_t));
  engine.cancel(leaves);
  engine.gate().open();
  expect_out_of_memory(waits.response->wait().status, "the request cannot be begun");
  expect_same_bits(goes_on.response->wait(), want);
}

TEST(OutOfMemory, SparesMemoryForTheErrorItself) {
  constexpr size_t kMessage = 100;  // less than the error's text
  const auto llm = load_or_die(tiny_options());
  const auto want = llm->generate({small_request()}).front();
  auto wide = greedy_request(random_prompt(400, 3), 4);
  wide.sampling.prompt_logprobs = 1;
  for (int round = 0; round < 3; ++round) {
    choral::testing::fail_allocations_of_others_until(kMessage, kSpare);
    const auto output = llm->generate({wide}).front();
    choral::testing::fail_allocations_of_others(0);
    expect_out_of_memory(output.status, "the request cannot be taken in");
    expect_same_bits(llm->generate({small_request()}).front(), want);
  }
}

// What is noted of it in many records must be made whole once it is begun.
TEST(OutOfMemory, TakesNoRequestInWhenTheSpareIsGoneAndLittleElseIsLeft) {
  const auto llm = load_or_die(tiny_options());
  const auto want = llm->generate({small_request()}).front();
  auto wide = greedy_request(random_prompt(400, 3), 4);
  wide.sampling.prompt_logprobs = 1;
  choral::testing::fail_allocations_of_others_until(100, kSpare);
  expect_out_of_memory(llm->generate({wide}).front().status, "the request cannot be taken in");  // takes the spare
  expect_same_bits(llm->generate({small_request()}).front(), want);
  {
    const Shortage shortage(size_t{32} << 10);
    expect_out_of_memory(llm->generate({small_request()}).front().status, "the request cannot be taken in");
  }
  expect_same_bits(llm->generate({small_request()}).front(), want);
}

TEST(OutOfMemory, EndsTheAnswerThatCannotBeKeptAndNotItsNeighbour) {
  const auto llm = load_or_die(tiny_options());
  const auto want = llm->generate({small_request()}).front();
  auto talkative = small_request();
  talkative.sampling.logprobs = 100;
  for (const auto& warm : llm->generate({talkative, talkative, talkative}))
    EXPECT_TRUE(warm.status.ok());  // the sampler has its memory
  const Shortage shortage(100 * sizeof(TokenLogprob));
  const auto outputs = llm->generate({small_request(), talkative, small_request()});
  expect_out_of_memory(outputs[1].status, "the answer cannot be kept");
  expect_same_bits(outputs[0], want);
  expect_same_bits(outputs[2], want);
}

TEST(OutOfMemory, EndsALoadOfAnAdapter) {
  const AdapterFiles files;
  const auto llm = load_or_die(tiny_options());
  const AdapterSpec spec{"a", files.write("a", 64, 1)};
  {
    const Shortage shortage(4096);
    expect_out_of_memory(llm->load_adapter(spec, false), "it cannot be loaded");
  }
  const Status loaded = llm->load_adapter(spec, false);
  EXPECT_TRUE(loaded.ok()) << loaded.to_string();
}

// Wherever the shortage is met first: by a thread that loads, or by the engine that takes in what was loaded or pinned.
TEST(OutOfMemory, LeavesNoChangeOfAdaptersHalfDone) {
  const AdapterFiles files;
  const AdapterSpec spec{"a", files.write("a", 64, 1)};
  for (const size_t least : {1, 16, 40, 64, 100, 200, 400, 1000, 4000, 10000}) {
    SCOPED_TRACE(least);
    const auto llm = load_or_die(tiny_options());
    const auto want = llm->generate({small_request()}).front();
    choral::testing::fail_allocations_of_others_until(least, kSpare);
    const Status loaded = llm->load_adapter(spec, false);
    choral::testing::fail_allocations_of_others(0);
    if (!loaded.ok()) {
      EXPECT_EQ(loaded.code(), Code::kResourceExhausted) << loaded.to_string();
      EXPECT_NE(loaded.message().find("adapter 'a'"), std::string::npos) << loaded.message();
      ASSERT_TRUE(llm->load_adapter(spec, false).ok());
    }
    while (llm->stats().adapter_bytes == 0) std::this_thread::yield();  // the engine has its spare memory again
    choral::testing::fail_allocations_of_others_until(least, kSpare);
    EXPECT_TRUE(llm->pin_adapter("a", true).ok());  // the engine's first list of wishes
    choral::testing::fail_allocations_of_others(0);
    EXPECT_TRUE(llm->unload_adapter("a").ok());
    while (llm->stats().adapter_bytes > 0) std::this_thread::yield();
    expect_same_bits(llm->generate({small_request()}).front(), want);
  }
}

TEST(OutOfMemory, PutsOffAChangeOfAdapters) {
  const AdapterFiles files;
  const auto llm = load_or_die(tiny_options());
  for (const char* name : {"a", "b"}) ASSERT_TRUE(llm->load_adapter({name, files.write(name, 64, name[0])}, false).ok());
  while (llm->stats().adapter_loads < 2) std::this_thread::yield();
  const auto want = llm->generate({small_request()}).front();
  auto wide = greedy_request(random_prompt(400, 3), 4);
  wide.sampling.prompt_logprobs = 1;
  choral::testing::fail_allocations_of_others_until(100, kSpare);
  expect_out_of_memory(llm->generate({wide}).front().status, "the request cannot be taken in");  // takes the spare
  const int64_t bytes = llm->stats().adapter_bytes;
  for (const char* name : {"a", "b"}) {
    ASSERT_TRUE(llm->unload_adapter(name).ok());
    expect_same_bits(llm->generate({small_request()}).front(), want);
  }
  EXPECT_EQ(llm->stats().adapter_bytes, bytes);
  choral::testing::fail_allocations_of_others(0);
  while (llm->stats().adapter_bytes > 0) std::this_thread::yield();
}

TEST(OutOfMemory, EndsALoadOfTheModel) {
  Status status;
  choral::testing::fail_allocations_of_others(4096);
  std::thread([&] { status = LLM::load(tiny_options()).status(); }).join();
  choral::testing::fail_allocations_of_others(0);
  expect_out_of_memory(status, "cannot be loaded");
  EXPECT_NE(load_or_die(tiny_options()), nullptr);
}

}  // namespace
}  // namespace choral::engine
