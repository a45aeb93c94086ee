// Ranks that are processes, played by threads: what they gather, how a step ends that one of them cannot do, and what becomes of
// a rank that is silent.
#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "engine/model_loader.h"
#include "engine/ranks/message_collective.h"
#include "engine/ranks/processes_test.h"
#include "engine/tiny_model_test.h"
#include "platform/cpu_context_test.h"

namespace choral::engine {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr double kTimeoutS = 20;

// What rank r has at a place before it is gathered.
float number(int rank, int64_t row, int64_t col, int round) {
  return static_cast<float>(1000 * rank + 100 * round + 10 * row + col);
}

// body(channel) of each rank, side by side.
void on_processes(int ranks, const std::function<void(RankChannel&)>& body, double timeout_s = kTimeoutS) {
  std::vector<std::thread> threads;
  for (auto& link : ThreadLinks::make(ranks)) {
    threads.emplace_back([&body, link, timeout_s] {
      RankChannel channel(link, timeout_s);
      body(channel);
    });
  }
  for (auto& thread : threads) thread.join();
}

std::vector<float> filled(int rank, int64_t rows, int64_t cols, int round) {
  std::vector<float> values;
  for (int64_t i = 0; i < rows * cols; ++i) values.push_back(number(rank, i / cols, i % cols, round));
  return values;
}

TEST(MessageCollective, EveryRankHasTheColumnsOfAll) {
  constexpr int64_t kRows = 5, kCols = 70;
  const std::vector<int64_t> begins{0, 2, 2, kCols};  // the second has none, the third's part is a long message
  on_processes(3, [&](RankChannel& channel) {
    platform::testing::CpuContext cpu(2);
    MessageCollective all(channel);
    for (int round = 0; round < 50; ++round) {
      all.begin_step();
      auto y = filled(channel.rank(), kRows, kCols, round);
      all.gather_columns((*cpu).kernel, {y.data(), kRows, kCols}, begins);
      ASSERT_TRUE(all.end_step(true));
      for (int64_t i = 0; i < kRows * kCols; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(i)], number(i % kCols < 2 ? 0 : 2, i / kCols, i % kCols, round));
      }
    }
  });
}

TEST(MessageCollective, EveryRankHasTheRowsOfTheirOwners) {
  on_processes(3, [&](RankChannel& channel) {
    platform::testing::CpuContext cpu(1);
    MessageCollective all(channel);
    all.begin_step();
    for (int round = 0; round < 50; ++round) {
      auto y = filled(channel.rank(), 7, 30, round);
      all.gather_rows((*cpu).kernel, {y.data(), 7, 30}, [](int64_t row) { return static_cast<int>(row % 2); });  // none is 2's
      for (int64_t i = 0; i < 7 * 30; ++i) {
        ASSERT_EQ(y[static_cast<size_t>(i)], number(static_cast<int>(i / 30 % 2), i / 30, i % 30, round));
      }
    }
    EXPECT_TRUE(all.end_step(true));
  });
}

// Wherever in a step a rank gives up, all end it, know of it, and do the next one.
TEST(MessageCollective, AStepThatOneRankGivesUpEndsForAll) {
  const std::vector<int64_t> begins{0, 40, 80, 120};
  on_processes(3, [&](RankChannel& channel) {
    platform::testing::CpuContext cpu(1);
    MessageCollective all(channel);
    for (int step = 0; step < 40; ++step) {
      const bool gives_up = step % 4 != 3 && step % 3 == channel.rank();
      all.begin_step();
      for (int i = 0; i < (gives_up ? step % 4 : 3); ++i) {
        std::vector<float> y(120);
        all.gather_columns((*cpu).kernel, {y.data(), 1, 120}, begins);
      }
      EXPECT_EQ(all.end_step(!gives_up), step % 4 == 3) << "step " << step;
    }
    EXPECT_TRUE(channel.lost().ok()) << channel.lost().message();
  });
}

TEST(RankChannel, LongMessagesOfAllCross) {
  on_processes(3, [](RankChannel& channel) {
    const auto all = channel.exchange(std::string(100'000, static_cast<char>('a' + channel.rank())));
    ASSERT_TRUE(all.ok());
    for (int r = 0; r < 3; ++r) EXPECT_EQ((*all)[static_cast<size_t>(r)], std::string(100'000, static_cast<char>('a' + r)));
  });
}

TEST(RankChannel, ASilentRankIsLostAndAllFailsFromThenOn) {
  const auto links = ThreadLinks::make(2);
  std::vector<std::string> told;
  RankChannel channel(links[0], 0.05, [&](const Status& lost) { told.emplace_back(lost.message()); });
  channel.set_hosts({"here", "there"});
  std::string bytes;
  const Status status = channel.receive(1, RankTag::kReply, bytes);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1 (there) has said nothing for 0.05 s"), HasSubstr("start them again")));
  links[1]->send(0, static_cast<int>(RankTag::kReply), "late");
  EXPECT_EQ(channel.receive(1, RankTag::kReply, bytes).message(), status.message());
  EXPECT_EQ(channel.send(1, RankTag::kCommand, "x").message(), status.message());
  EXPECT_EQ(told.size(), 1U);
}

TEST(RankChannel, ARankAtAnotherPointIsLost) {
  const auto links = ThreadLinks::make(2);
  RankChannel channel(links[0], kTimeoutS);
  links[1]->send(0, static_cast<int>(RankTag::kEnded), {});
  std::string bytes;
  EXPECT_THAT(channel.receive(1, RankTag::kReply, bytes).message(), HasSubstr("another point of the program"));
}

TEST(ProcessesTest, SayWhatAllOfThemHave) {
  const auto one = load_or_die(tiny_options());
  Processes two({tiny_options(), tiny_options()});
  ASSERT_TRUE(two.status().ok()) << two.status().message();
  const ModelInfo& info = two.llm()->info();
  EXPECT_EQ(info.ranks, 2);
  EXPECT_EQ(info.digest, one->info().digest);
  EXPECT_EQ(info.parameters, one->info().parameters);
  EXPECT_EQ(info.threads, 4);
  EXPECT_LT(info.weight_bytes, one->info().weight_bytes * 21 / 20) << "each rank has its rows alone";
  EXPECT_THAT(info.notes, Contains(HasSubstr("tensor parallel: 2 processes")));
  for (const Status& ended : two.end()) EXPECT_TRUE(ended.ok()) << ended.message();
}

// docs/design/ranks.md: what a step of one row sends.
TEST(ProcessesTest, SendWhatTheFormulaSays) {
  constexpr int kRanks = 2;
  Processes all(std::vector<EngineOptions>(kRanks, tiny_options()));
  ASSERT_TRUE(all.status().ok()) << all.status().message();
  const auto floats_of = [&](int tokens) {
    const int64_t before = all.floats();
    EXPECT_TRUE(all.llm()->generate({greedy_request(random_prompt(8, 1), tokens)}).at(0).status.ok());
    return all.floats() - before;
  };
  const auto files = open_model_config(tiny_options());
  ASSERT_TRUE(files.ok());
  const auto number = [&](const char* key) { return *files->config.get_int_or(key, 0); };
  const int64_t heads = number("num_attention_heads") * number("head_dim");
  const int64_t layer = heads + 2 * number("hidden_size") + number("intermediate_size");
  const int64_t step = number("num_hidden_layers") * layer + number("hidden_size") + all.llm()->info().vocab_size;
  EXPECT_EQ(floats_of(6) - floats_of(5), (kRanks - 1) * step);
}

TEST(ProcessesTest, AreToBeStartedAlike) {
  auto other = tiny_options();
  other.kv_cache_dtype = "int8";
  Processes two({tiny_options(), other});
  EXPECT_THAT(two.status().message(),
              AllOf(HasSubstr("rank 1"), HasSubstr("--kv-cache-dtype int8"), HasSubstr("started otherwise")));
  EXPECT_FALSE(two.end()[1].ok());
}

TEST(ProcessesTest, MustHaveTheSameModel) {
  Processes two({tiny_options("tiny-llama3"), tiny_options("tiny-qwen2")});
  EXPECT_FALSE(two.status().ok());
  EXPECT_FALSE(two.end()[1].ok());
}

TEST(ProcessesTest, AsManyAsWereAskedFor) {
  auto options = tiny_options();
  options.tensor_parallel_size = 3;
  options.rank_link = ThreadLinks::make(2)[0];
  EXPECT_THAT(LLM::load(options).status().message(), HasSubstr("--tensor-parallel-size 3: 2 processes were started"));
}

// A rank that is silent in a step: its requests and all later ones fail with its name, and the program is told.
TEST(ProcessesTest, ALostRankEndsAllRequests) {
  auto options = tiny_options();
  const auto links = ThreadLinks::make(2);
  options.rank_timeout_s = 0.2;
  std::atomic<int> losses{0};
  options.on_lost = [&](const Status&) { ++losses; };
  auto own = options, far = tiny_options();
  own.rank_link = links[0];
  far.rank_link = links[1];
  std::thread follower([&] { static_cast<void>(follow_first_rank(far)); });
  auto llm = LLM::load(own);
  ASSERT_TRUE(llm.ok()) << llm.status().message();
  // The other is taken away: what it has to say is said by nobody.
  links[0]->send(1, static_cast<int>(RankTag::kCommand), std::string(1, '\5'));
  follower.join();
  for (int i = 0; i < 2; ++i) {
    const auto outputs = (*llm)->generate({greedy_request(random_prompt(8, 1), 4)});
    EXPECT_EQ(outputs.at(0).status.code(), Code::kUnavailable);
    EXPECT_THAT(outputs.at(0).status.message(), HasSubstr("rank 1"));
  }
  EXPECT_EQ(losses, 1);
}

}  // namespace
}  // namespace choral::engine
