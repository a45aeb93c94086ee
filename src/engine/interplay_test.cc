// Everything that ends a request before its time, all at once: clients that cancel, that drop their streams, whose time is up,
// while too few blocks make answers give way, adapters push each other out of the memory and grammars hold answers to a form.
// Whoever stays gets its answer, the same as alone; whoever leaves, an end; and nothing of either is left behind.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/adapters/adapter_files_test.h"

namespace choral::engine {
namespace {

using ::testing::AnyOf;

constexpr int kLongest = 96;
constexpr int kClients = 3, kRequests = 30;
constexpr std::chrono::minutes kStuck{2};  // no answer takes so long

class Interplay : public ::testing::Test {
 protected:
  Interplay() {
    for (const char* name : {"a", "b", "c"}) files_.write(name, 4, static_cast<uint64_t>(name[0]));
    auto options = tiny_options();
    options.adapter_root = files_.root().string();
    options.max_model_len = kLongest;
    options.max_num_seqs = 6;
    options.max_num_batched_tokens = 40;
    {
      const auto probe = load_or_die(options);
      auto request = with_adapters(greedy_request(random_prompt(5, 1), 1), {{"a"}});
      EXPECT_TRUE(probe->generate({request}).front().status.ok());
      options.adapter_memory_bytes = probe->adapters().front().size_bytes * 5 / 2;
      options.kv_cache_bytes = probe->info().kv_cache_bytes / (probe->info().kv_cache_tokens / 32) * 8;
    }
    llm_ = load_or_die(options);
  }

  AdapterFiles files_;
  std::unique_ptr<LLM> llm_;
};

struct Plan {
  enum class Leaves { kNot, kCancels, kDrops, kLate } leaves = Leaves::kNot;
  int after_pieces = 0;
  bool called_back = false;
  Request request;
};

Plan plan_of(std::mt19937& random, uint32_t seed) {
  const auto up_to = [&random](int most) { return static_cast<int>(random() % static_cast<uint32_t>(most + 1)); };
  Plan plan;
  plan.leaves = static_cast<Plan::Leaves>(up_to(3));
  plan.after_pieces = up_to(6);
  plan.called_back = up_to(1) == 1;
  auto& request = plan.request;
  // Few beginnings, so that prefixes are shared and waited for.
  request = greedy_request(random_prompt(10 + up_to(60), static_cast<uint32_t>(up_to(2))), 5 + up_to(20));
  request.sampling.logprobs.reset();
  request.sampling.ignore_eos = false;
  request.sampling.n = 1 + up_to(2);
  if (request.sampling.n > 1) request.sampling.temperature = 1;
  request.sampling.seed = seed;
  const char* const names[] = {"a", "b", "c"};
  if (up_to(3) > 0) request.adapters.push_back({names[up_to(2)]});
  if (!request.adapters.empty() && up_to(3) == 0) {
    if (const char* other = names[up_to(2)]; request.adapters[0].name != other) request.adapters.push_back({other, 0.5F});
  }
  if (const int form = up_to(3); form == 0) {
    request.structured_output = {.kind = StructuredOutput::Kind::kChoice, .choices = {"yes", "no", "yes, but not now"}};
  } else if (form == 1) {
    request.structured_output = {.kind = StructuredOutput::Kind::kJsonObject};
  }
  if (plan.leaves == Plan::Leaves::kLate) (up_to(1) == 0 ? request.timeout_s : request.queue_timeout_s) = 0.001 * (1 + up_to(30));
  return plan;
}

// Pieces as they come, by whichever way; false: there was none for far too long.
class Reader {
 public:
  Reader(ResponseStream& stream, bool called_back) : stream_(stream), called_back_(called_back) {
    if (!called_back) return;
    stream.on_ready([this] {
      const std::lock_guard lock(mutex_);
      called_ = true;
      changed_.notify_one();
    });
  }
  ~Reader() { stream_.on_ready({}); }

  StreamState next(StreamEvent& event) {
    if (!called_back_) return stream_.next_for(event, kStuck);
    for (;;) {
      const StreamState state = stream_.try_next(event);
      if (state != StreamState::kPending) return state;
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, kStuck, [this] { return called_; })) return StreamState::kPending;
      called_ = false;
    }
  }

 private:
  ResponseStream& stream_;
  const bool called_back_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool called_ = false;
};

void expect_form(const StructuredOutput& form, const Completion& answer) {
  if (answer.finish_reason != FinishReason::kStop) return;
  if (form.kind == StructuredOutput::Kind::kChoice) {
    EXPECT_THAT(answer.text, AnyOf("yes", "no", "yes, but not now"));
  } else if (form.kind == StructuredOutput::Kind::kJsonObject) {
    EXPECT_TRUE(nlohmann::json::parse(answer.text, nullptr, false).is_object()) << answer.text;
  }
}

void expect_end(const Plan& plan, const RequestOutput& output) {
  const bool late = plan.leaves == Plan::Leaves::kLate && output.status.code() == Code::kDeadlineExceeded;
  EXPECT_TRUE(output.status.ok() || late) << output.status.to_string();
  EXPECT_EQ(output.completions.size(), static_cast<size_t>(plan.request.sampling.n));
  for (const auto& answer : output.completions) {
    EXPECT_NE(answer.finish_reason, FinishReason::kNone);
    EXPECT_TRUE(plan.leaves == Plan::Leaves::kCancels || answer.finish_reason != FinishReason::kCancelled);
    expect_form(plan.request.structured_output, answer);
  }
}

// Of those that stayed, what they got.
using Kept = std::vector<std::pair<Request, RequestOutput>>;

void be_client(LLM& llm, int client, Kept& kept) {
  std::mt19937 random(static_cast<uint32_t>(client));
  for (int i = 0; i < kRequests; ++i) {
    const Plan plan = plan_of(random, static_cast<uint32_t>(client * kRequests + i));
    auto stream = llm.submit(plan.request);
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    {
      Reader reader(**stream, plan.called_back);
      StreamEvent event;
      StreamState state = StreamState::kEvent;
      for (int pieces = 0; state == StreamState::kEvent; ++pieces) {
        if (pieces == plan.after_pieces && plan.leaves == Plan::Leaves::kDrops) break;
        if (pieces == plan.after_pieces && plan.leaves == Plan::Leaves::kCancels) (*stream)->cancel();
        state = reader.next(event);
      }
      ASSERT_NE(state, StreamState::kPending) << "client " << client << ", request " << i << " is stuck";
      if (state == StreamState::kEvent) continue;  // dropped
    }
    auto output = (*stream)->wait();
    expect_end(plan, output);
    if (plan.leaves == Plan::Leaves::kNot) kept.emplace_back(plan.request, std::move(output));
  }
}

TEST_F(Interplay, WhoeverStaysIsAnsweredAndNothingIsLeftBehind) {
  std::vector<Kept> kept(kClients);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) clients.emplace_back([&, i] { be_client(*llm_, i, kept[static_cast<size_t>(i)]); });
  for (auto& client : clients) client.join();
  const auto stats = stats_at_rest(*llm_);
  EXPECT_GT(stats.preemptions, 0);
  EXPECT_GT(stats.adapter_evictions, 0);
  ASSERT_TRUE(llm_->check_health(std::chrono::minutes(1)).ok());
  EXPECT_EQ(llm_->stats().waiting, 0);
  EXPECT_EQ(llm_->stats().waiting_tokens, 0);
  EXPECT_EQ(llm_->stats().kv_blocks_free, llm_->stats().kv_blocks_total);
  for (const auto& adapter : llm_->adapters()) EXPECT_EQ(adapter.in_use, 0) << adapter.name;
  for (const auto& answers : kept) {
    for (const auto& [request, together] : answers) {
      const auto alone = llm_->generate({request}).front();
      for (size_t i = 0; i < alone.completions.size(); ++i)
        EXPECT_EQ(alone.completions[i].token_ids, together.completions[i].token_ids);
    }
  }
}

}  // namespace
}  // namespace choral::engine
