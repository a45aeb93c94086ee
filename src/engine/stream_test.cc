// Streams over the public API: read without a thread that waits, what they tell while the answer comes, and what is left of them
// when the LLM goes first.
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "engine/adapters/adapter_files_test.h"
#include "engine/gated_executor_test.h"
#include "engine/tiny_model_test.h"
#include "layers/vocab_embedding.h"

namespace choral::engine {
namespace {

using namespace std::chrono_literals;

// Whose stream has news, from any thread to the one that reads.
class NewsQueue {
 public:
  void add(size_t stream) {
    const std::lock_guard lock(mutex_);
    streams_.insert(stream);
    changed_.notify_one();
  }
  size_t take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !streams_.empty(); });
    const size_t stream = *streams_.begin();
    streams_.erase(streams_.begin());
    return stream;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<size_t> streams_;
};

std::vector<Request> some_requests() {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 24; ++i) {
    requests.push_back(greedy_request(random_prompt(5 + 4 * static_cast<int>(i), i), 3 + static_cast<int>(i) * 2));
    requests.back().sampling.n = 1 + static_cast<int>(i % 3);
    requests.back().sampling.temperature = 1;
    requests.back().sampling.seed = i;
  }
  return requests;
}

TEST(Stream, OneThreadReadsManyWithoutWaitingForAny) {
  auto options = tiny_options();
  options.max_num_seqs = 8;
  const auto llm = load_or_die(options);
  const auto want = llm->generate(some_requests());
  NewsQueue news;
  std::vector<std::unique_ptr<ResponseStream>> streams;
  std::vector<std::vector<std::string>> texts;
  for (auto& request : some_requests()) {
    texts.emplace_back(request.sampling.n);
    auto stream = llm->submit(std::move(request));
    ASSERT_TRUE(stream.ok()) << stream.status().to_string();
    streams.push_back(std::move(*stream));
    streams.back()->on_ready([&news, i = streams.size() - 1] { news.add(i); });
  }
  for (size_t open = streams.size(); open > 0;) {
    const size_t i = news.take();
    StreamEvent event;
    auto state = StreamState::kEvent;
    while ((state = streams[i]->try_next(event)) == StreamState::kEvent) texts[i].at(event.index) += event.text;
    if (state == StreamState::kEnd) --open;
  }
  for (size_t i = 0; i < want.size(); ++i) {
    for (size_t c = 0; c < texts[i].size(); ++c) EXPECT_EQ(texts[i][c], want[i].completions.at(c).text) << i;
  }
}

TEST(Stream, TellsUsageAndPromptLogprobsWithTheFirstPiece) {
  const auto llm = load_or_die(tiny_options());
  auto request = greedy_request(random_prompt(100, 3), 5);
  ASSERT_TRUE(llm->generate({request}).front().status.ok());
  auto cached = llm->submit(request);
  ASSERT_TRUE(cached.ok());
  StreamEvent event;
  ASSERT_EQ((*cached)->next_for(event, 5min), StreamState::kEvent);
  EXPECT_EQ((*cached)->facts().prompt_tokens, 100);
  EXPECT_EQ((*cached)->facts().cached_tokens, 96);
  EXPECT_TRUE((*cached)->facts().adapters.empty());
  EXPECT_EQ((*cached)->wait().cached_tokens, 96);
  EXPECT_EQ((*cached)->facts().cached_tokens, 96);

  request.sampling.prompt_logprobs = 2;
  const auto whole = llm->generate({request}).front();
  auto echoed = llm->submit(request);
  ASSERT_TRUE(echoed.ok());
  ASSERT_TRUE((*echoed)->next(event));
  ASSERT_EQ(event.prompt_logprobs.size(), 99U);
  for (size_t i = 0; i < 99; ++i) {
    EXPECT_EQ(event.prompt_logprobs[i].chosen.logprob, whole.prompt_logprobs[i].chosen.logprob);
    EXPECT_EQ(event.prompt_logprobs[i].top.size(), 2U);
  }
  while ((*echoed)->next(event)) EXPECT_TRUE(event.prompt_logprobs.empty());
}

TEST(Stream, TellsWhichAdaptersAnswer) {
  const AdapterFiles files;
  const auto llm = load_or_die(tiny_options());
  ASSERT_TRUE(llm->load_adapter({"a", files.write("v1", 4, 1)}).ok());
  ASSERT_TRUE(llm->load_adapter({"a", files.write("v2", 4, 2)}, true).ok());
  ASSERT_TRUE(llm->load_adapter({"b", files.write("b", 8, 3)}).ok());
  auto stream = llm->submit(with_adapters(greedy_request(random_prompt(20, 1), 5), {{"b", 0.5F}, {"a"}}));
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  ASSERT_TRUE((*stream)->next(event));
  const auto adapters = (*stream)->facts().adapters;
  ASSERT_EQ(adapters.size(), 2U);
  EXPECT_EQ(adapters[0].name, "b");
  EXPECT_EQ(adapters[0].scale, 0.5F);
  EXPECT_EQ(adapters[1].name, "a");
  EXPECT_EQ(adapters[1].generation, 2);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(adapters[i].digest, llm->adapters()[1 - i].digest);
  EXPECT_EQ((*stream)->wait().adapters.at(1).generation, 2);
}

TEST(Stream, SaysWhatStoppedIt) {
  const auto llm = load_or_die(tiny_options());
  auto request = greedy_request(random_prompt(20, 1), 30);
  const auto free_run = llm->generate({request}).front().completions[0];
  request.sampling.stop_token_ids = {free_run.token_ids[4]};
  auto stream = llm->submit(request);
  ASSERT_TRUE(stream.ok());
  StreamEvent event;
  while ((*stream)->next(event)) {
    const bool last = event.finish_reason != FinishReason::kNone;
    EXPECT_EQ(event.stop_reason, last ? std::to_string(free_run.token_ids[4]) : "");
  }
  EXPECT_EQ(event.finish_reason, FinishReason::kStop);
}

// The first layer of a model whose steps begin when the test says so.
class GatedEmbedding : public layers::VocabParallelEmbedding {
 public:
  GatedEmbedding(layers::Builder& builder, const Spec& spec, StepGate& gate)
      : VocabParallelEmbedding(builder, spec), gate_(gate) {}
  void lookup(const platform::Context& ctx, platform::IndexArray<int32_t> ids, MatrixView<float> out,
              const lora::PunicaWrapper* lora) const override {
    gate_.pass();
    VocabParallelEmbedding::lookup(ctx, ids, out, lora);
  }

 private:
  StepGate& gate_;
};

std::unique_ptr<LLM> load_gated(EngineOptions options, StepGate& gate) {
  const auto overrides = std::make_shared<platform::LayerOverrides>();
  const auto make = [&gate](layers::Builder& builder, const GatedEmbedding::Spec& spec) {
    return std::make_unique<GatedEmbedding>(builder, spec, gate);
  };
  EXPECT_TRUE((overrides->replace<layers::VocabParallelEmbedding, layers::Builder>(GatedEmbedding::kLayerName, make)).ok());
  options.layer_overrides = overrides;
  return load_or_die(options);
}

TEST(Stream, StaysReadableWhenTheLlmGoesFirst) {
  auto options = tiny_options();
  options.max_num_seqs = 2;
  const auto want = load_or_die(options)->generate({greedy_request(random_prompt(20, 1), 6)}).front();
  StepGate gate;
  auto llm = load_gated(options, gate);
  std::vector<std::unique_ptr<ResponseStream>> streams;  // done, answering, answering, waiting
  for (const int tokens : {6, 450, 450, 450}) {
    auto stream = llm->submit(greedy_request(random_prompt(20, 1), tokens));
    ASSERT_TRUE(stream.ok());
    streams.push_back(std::move(*stream));
  }
  gate.allow(20);
  gate.wait_for_asked(21);
  std::atomic<int> calls = 0;
  StreamEvent event;
  for (const auto& stream : streams) {
    while (stream->try_next(event) == StreamState::kEvent) {
    }
    stream->on_ready([&] { ++calls; });
  }
  const int before = calls;
  // check_health() returns when the LLM is ending, which then waits for the step that is held: no answer ends by itself before.
  std::thread opening([&gate, ending = llm.get()] {
    EXPECT_EQ(ending->check_health(1h).code(), Code::kUnavailable);
    gate.open();
  });
  llm.reset();
  opening.join();
  const int all = calls;
  EXPECT_GT(all, before) << "the end is news";
  for (size_t i = 0; i < streams.size(); ++i) {
    streams[i]->cancel();
    auto state = StreamState::kEvent;
    while ((state = streams[i]->try_next(event)) == StreamState::kEvent) {
    }
    EXPECT_EQ(state, StreamState::kEnd) << "all have ended when the LLM has";
    const auto output = streams[i]->wait();
    EXPECT_EQ(output.status.code(), i == 0 ? Code::kOk : Code::kUnavailable);
    const auto& ids = output.completions.at(0).token_ids;
    if (i < 2) {
      ASSERT_GE(ids.size(), 6U);
      EXPECT_TRUE(std::equal(ids.begin(), ids.begin() + 6, want.completions[0].token_ids.begin()));
    }
    streams[i]->cancel();
  }
  EXPECT_EQ(calls, all);
}

// Callers on several threads that read, cancel and let go at any time, while the engine ends too.
TEST(Stream, ReadersMayLeaveAtAnyTime) {
  for (int round = 0; round < 4; ++round) {
    auto llm = load_or_die(tiny_options());
    std::atomic<int> calls = 0;
    std::vector<std::thread> readers;
    std::vector<std::vector<std::unique_ptr<ResponseStream>>> kept(3);  // outlive the LLM
    for (uint32_t t = 0; t < 3; ++t) {
      readers.emplace_back([&, t] {
        for (uint32_t i = 0; i < 20; ++i) {
          auto stream = llm->submit(greedy_request(random_prompt(10 + static_cast<int>(i), i), 1 + static_cast<int>(i * 7 % 30)));
          ASSERT_TRUE(stream.ok()) << stream.status().to_string();
          auto touched = std::make_unique<std::atomic<int>>(0);
          (*stream)->on_ready([&calls, mine = touched.get()] {
            mine->fetch_add(1);
            ++calls;
          });
          StreamEvent event;
          if (i % 3 == 0) {
            while ((*stream)->next_for(event, 1ms) != StreamState::kEnd) {
            }
          }
          if (i % 4 == 1) (*stream)->cancel();
          if (i % 5 == 2) {
            (*stream)->on_ready([&calls] { ++calls; });
            kept[t].push_back(std::move(*stream));
          }
          stream->reset();
          touched.reset();
        }
      });
    }
    for (auto& reader : readers) reader.join();
    llm.reset();
    for (const auto& streams : kept) {
      for (const auto& stream : streams) {
        StreamEvent event;
        while (stream->next(event)) {
        }
      }
    }
  }
}

}  // namespace
}  // namespace choral::engine
