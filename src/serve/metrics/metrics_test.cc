#include "serve/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "serve/metrics/exposition_test.h"

namespace choral::serve {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

ModelInfo small_model() {
  ModelInfo model;
  model.kv_cache_tokens = 320;
  model.kv_block_tokens = 32;
  model.kv_cache_dtype = "float32";
  model.max_model_len = 300;
  return model;
}

std::unique_ptr<Metrics> make(size_t max_adapters = 3, const EngineOptions& options = {}) {
  return std::make_unique<Metrics>("tiny", small_model(), options, max_adapters);
}

Exposition scrape(Metrics& metrics, const EngineView& view = {}) { return Exposition(metrics.exposition(view, 1.5e9)); }

SamplingParams params(int n, int max_tokens) {
  SamplingParams out;
  out.n = n;
  out.max_tokens = max_tokens;
  return out;
}

std::vector<AdapterUse> use(const std::string& name) { return {{.name = name}}; }

AdapterInfo adapter(const std::string& name, AdapterState state, int64_t bytes = 0, int in_use = 0) {
  AdapterInfo info;
  info.name = name;
  info.state = state;
  info.size_bytes = bytes;
  info.in_use = in_use;
  return info;
}

// A request of one answer with three tokens, at 1, 2 and 4 seconds after its arrival.
void serve_one(Metrics& metrics, const std::vector<AdapterUse>& adapters) {
  auto meter = metrics.begin(adapters, params(1, 16), 100);
  meter.on_tokens(0, 1, 101);
  meter.on_tokens(0, 1, 102);
  meter.on_tokens(0, 1, 104);
  meter.on_guesses({.guessed = 5, .right = 2});
  meter.on_finish(0, FinishReason::kStop, 104);
  meter.end({.prompt_tokens = 7, .cached_tokens = 4, .queue_s = 0.5, .preemptions = 2}, FinishReason::kStop, 104);
}

TEST(Metrics, EverythingIsWellFormedBeforeAndAfterRequests) {
  const auto metrics = make();
  EXPECT_THAT(scrape(*metrics).faults(), IsEmpty());
  serve_one(*metrics, {});
  serve_one(*metrics, use("back\\slash \"quoted\" \n line \xFF\x80 \u00e9"));
  metrics->reject(Rejection::kQueueFull);
  metrics->http_answer("/v1/completions", 200);
  metrics->http_answer("", 404);
  metrics->unknown_fields(2);
  metrics->adapter_loaded(0.2);
  EXPECT_THAT(scrape(*metrics, {.stats = {.kv_blocks_total = 10, .kv_blocks_free = 4},
                                .adapters = {adapter("a,b\n\xFF", AdapterState::kResident)}})
                  .faults(),
              IsEmpty());
}

TEST(Metrics, AnAnswersTimesAreThoseOfItsEvents) {
  const auto metrics = make();
  serve_one(*metrics, {});
  const auto seen = scrape(*metrics);
  const auto sum = [&seen](const std::string& name) { return seen.value("vllm:" + name + "_sum"); };
  const auto count = [&seen](const std::string& name) { return seen.value("vllm:" + name + "_count"); };
  EXPECT_EQ(sum("time_to_first_token_seconds"), 1);
  EXPECT_EQ(count("inter_token_latency_seconds"), 2);
  EXPECT_EQ(sum("inter_token_latency_seconds"), 3);
  EXPECT_EQ(sum("request_time_per_output_token_seconds"), 1.5);
  EXPECT_EQ(sum("e2e_request_latency_seconds"), 4);
  EXPECT_EQ(sum("request_queue_time_seconds"), 0.5);
  EXPECT_EQ(sum("request_prefill_time_seconds"), 0.5);
  EXPECT_EQ(sum("request_decode_time_seconds"), 3);
  EXPECT_EQ(sum("request_inference_time_seconds"), 3.5);
  EXPECT_EQ(sum("request_prompt_tokens"), 7);
  EXPECT_EQ(sum("request_generation_tokens"), 3);
  EXPECT_EQ(sum("request_max_num_generation_tokens"), 3);
  EXPECT_EQ(sum("request_params_n"), 1);
  EXPECT_EQ(sum("request_params_max_tokens"), 16);
  EXPECT_EQ(sum("request_prefill_kv_computed_tokens"), 3);
  EXPECT_EQ(sum("request_num_preemptions"), 2);
  EXPECT_EQ(seen.value("vllm:prompt_tokens_total"), 7);
  EXPECT_EQ(seen.value("vllm:prompt_tokens_cached_total"), 4);
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "stop"}}), 1);
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "length"}}), 0) << "a rate() needs the 0 before the 1";
}

TEST(Metrics, BucketsAndLabelsAreThoseOfVllm) {
  const auto metrics = make();
  const auto seen = scrape(*metrics);
  const auto bounds = [&seen](const std::string& name) {
    std::vector<std::string> out;
    for (const auto& sample : seen.all(name + "_bucket")) out.push_back(sample.labels.at("le"));
    return out;
  };
  using List = std::vector<std::string>;
  EXPECT_EQ(bounds("vllm:time_to_first_token_seconds"),
            (List{"0.001", "0.005", "0.01", "0.02", "0.04", "0.06", "0.08", "0.1", "0.25", "0.5",  "0.75", "1",
                  "2.5",   "5",     "7.5",  "10",   "20",   "40",   "80",   "160", "640",  "2560", "+Inf"}));
  EXPECT_EQ(bounds("vllm:inter_token_latency_seconds"),
            (List{"0.01", "0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.4", "0.5",
                  "0.75", "1",     "2.5",  "5",     "7.5", "10",   "20",  "40",  "80",  "+Inf"}));
  EXPECT_EQ(bounds("vllm:e2e_request_latency_seconds"),
            (List{"0.3", "0.5", "0.8", "1",  "1.5", "2",   "2.5", "5",   "10",   "15",   "20",
                  "30",  "40",  "50",  "60", "120", "240", "480", "960", "1920", "7680", "+Inf"}));
  EXPECT_EQ(bounds("vllm:request_prompt_tokens"), (List{"1", "2", "5", "10", "20", "50", "100", "200", "+Inf"}));
  for (const auto& sample : seen.all("vllm:num_requests_running")) {
    EXPECT_EQ(sample.labels, (SampleLabels{{"engine", "0"}, {"model_name", "tiny"}}));
  }
  EXPECT_EQ(seen.all("vllm:admission_rejections_total").front().labels.count("engine"), 0);
}

TEST(Metrics, EachAnswerOfSeveralCountsAndTheRequestOnce) {
  const auto metrics = make();
  auto meter = metrics->begin({}, params(3, 0), 100);
  for (int i = 0; i < 3; ++i) meter.on_tokens(i, 2 + i, 101);
  for (int i = 0; i < 3; ++i) meter.on_finish(i, FinishReason::kLength, 102);
  meter.end({.prompt_tokens = 5}, FinishReason::kLength, 102);
  const auto seen = scrape(*metrics);
  EXPECT_EQ(seen.value("vllm:time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "length"}}), 3);
  EXPECT_EQ(seen.value("vllm:request_prompt_tokens_count"), 1);
  EXPECT_EQ(seen.value("vllm:request_params_n_sum"), 3);
  EXPECT_EQ(seen.value("vllm:request_params_max_tokens_count"), 0);
  EXPECT_EQ(seen.value("vllm:request_max_num_generation_tokens_sum"), 4);
  EXPECT_EQ(seen.value("vllm:request_generation_tokens_sum"), 9);
}

TEST(Metrics, WhoLeavesIsAnAbortAndMakesNoLatency) {
  const auto metrics = make();
  {
    auto meter = metrics->begin(use("sql"), {}, 100);
    meter.on_tokens(0, 1, 101);
  }
  const auto seen = scrape(*metrics);
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "abort"}}), 1);
  EXPECT_EQ(seen.value("choral:adapter_requests_total", {{"adapter", "sql"}, {"finished_reason", "abort"}}), 1);
  EXPECT_EQ(seen.value("vllm:e2e_request_latency_seconds_count"), 0);
  EXPECT_EQ(seen.value("vllm:time_to_first_token_seconds_count"), 1) << "its first token did come";
}

TEST(Metrics, AMeterThatIsReplacedEndsFirst) {
  const auto metrics = make();
  auto meter = metrics->begin({}, {}, 100);
  meter = metrics->begin({}, {}, 100);
  EXPECT_EQ(scrape(*metrics).value("vllm:request_success_total", {{"finished_reason", "abort"}}), 1);
  meter.end({}, FinishReason::kError, 101);
  meter.end({}, FinishReason::kError, 101);
  EXPECT_EQ(scrape(*metrics).value("vllm:request_success_total", {{"finished_reason", "error"}}), 1);
}

TEST(Metrics, AdaptersHaveBoundedSeriesThatStayTheirs) {
  const auto metrics = make(2);
  for (const char* name : {"a", "b", "c", "d", "a", "other", "mixed"}) serve_one(*metrics, use(name));
  serve_one(*metrics, {{.name = "a"}, {.name = "c"}});
  serve_one(*metrics, {});
  const auto tokens = [&](const Exposition& seen, const char* label) {
    return seen.value("choral:adapter_generation_tokens_total", {{"adapter", label}});
  };
  const auto seen =
      scrape(*metrics, {.adapters = {adapter("a", AdapterState::kResident, 10), adapter("b", AdapterState::kOnDisk, 20),
                                     adapter("c", AdapterState::kResident, 30), adapter("d", AdapterState::kResident, 40)}});
  EXPECT_EQ(tokens(seen, "a"), 6);
  EXPECT_EQ(tokens(seen, "b"), 3);
  EXPECT_EQ(tokens(seen, "c"), std::nullopt);
  EXPECT_EQ(tokens(seen, "other"), 12) << "c, d, and two whose names the labels need";
  EXPECT_EQ(tokens(seen, "mixed"), 3);
  EXPECT_EQ(tokens(seen, "base"), 3);
  EXPECT_EQ(seen.value("choral:adapter_spec_decode_draft_tokens_total", {{"adapter", "a"}}), 10);
  EXPECT_EQ(seen.value("choral:adapter_spec_decode_accepted_tokens_total", {{"adapter", "a"}}), 4);
  EXPECT_EQ(seen.value("choral:adapter_spec_decode_accepted_tokens_total", {{"adapter", "c"}}), std::nullopt);
  EXPECT_EQ(seen.value("choral:adapter_spec_decode_accepted_tokens_total", {{"adapter", "other"}}), 8);
  EXPECT_EQ(seen.value("choral:adapter_bytes", {{"adapter", "a"}}), 10);
  EXPECT_EQ(seen.value("choral:adapter_bytes", {{"adapter", "b"}}), 0) << "it is not in memory";
  EXPECT_EQ(seen.value("choral:adapter_bytes", {{"adapter", "other"}}), 70);
}

TEST(Metrics, AnUnloadedAdapterGivesItsSeriesBackOnceNobodyUsesIt) {
  const auto metrics = make(1);
  auto meter = metrics->begin(use("a"), {}, 100);
  const EngineView without{.adapters = {adapter("b", AdapterState::kResident)}};
  scrape(*metrics, without);
  scrape(*metrics, without);
  serve_one(*metrics, use("b"));
  auto seen = scrape(*metrics, without);
  EXPECT_EQ(seen.value("choral:adapter_requests_total", {{"adapter", "b"}, {"finished_reason", "stop"}}), std::nullopt)
      << "a request still has a's series";
  meter.end({}, FinishReason::kStop, 101);
  seen = scrape(*metrics, without);
  EXPECT_EQ(seen.value("choral:adapter_requests_total", {{"adapter", "a"}, {"finished_reason", "stop"}}), 1);
  serve_one(*metrics, use("b"));
  seen = scrape(*metrics, without);
  EXPECT_EQ(seen.value("choral:adapter_requests_total", {{"adapter", "a"}, {"finished_reason", "stop"}}), std::nullopt);
  EXPECT_EQ(seen.value("choral:adapter_requests_total", {{"adapter", "b"}, {"finished_reason", "stop"}}), 1);
  EXPECT_THAT(seen.faults(), IsEmpty());
}

TEST(Metrics, TheEnginesFiguresAreTakenAtTheScrape) {
  const auto metrics = make();
  EngineView view{.stats = {.running = 2,
                            .waiting = 3,
                            .waiting_tokens = 70,
                            .prompt_tokens = 12,
                            .generated_tokens = 11,
                            .preemptions = 4,
                            .corrupted = 5,
                            .prefix_query_tokens = 20,
                            .prefix_hit_tokens = 8,
                            .kv_blocks_total = 10,
                            .kv_blocks_free = 4,
                            .adapter_loads = 6,
                            .adapter_evictions = 1},
                  .adapters = {adapter("x", AdapterState::kResident), adapter("y", AdapterState::kOnDisk)},
                  .device_notes = 2};
  const auto seen = scrape(*metrics, view);
  EXPECT_EQ(seen.value("vllm:num_requests_running"), 2);
  EXPECT_EQ(seen.value("vllm:num_requests_waiting"), 3);
  EXPECT_EQ(seen.value("choral:waiting_prompt_tokens"), 70);
  EXPECT_EQ(seen.value("vllm:kv_cache_usage_perc"), 0.6);
  EXPECT_EQ(seen.value("vllm:generation_tokens_total"), 11);
  EXPECT_EQ(seen.value("vllm:num_preemptions_total"), 4);
  EXPECT_EQ(seen.value("vllm:corrupted_requests_total"), 5);
  EXPECT_EQ(seen.value("vllm:prompt_tokens_by_source_total", {{"source", "local_compute"}}), 12);
  EXPECT_EQ(seen.value("vllm:prompt_tokens_by_source_total", {{"source", "local_cache_hit"}}), 8);
  EXPECT_EQ(seen.value("vllm:prefix_cache_queries_total"), 20);
  EXPECT_EQ(seen.value("vllm:prefix_cache_hits_total"), 8);
  EXPECT_EQ(seen.value("vllm:cache_config_info", {{"block_size", "32"}, {"num_gpu_blocks", "10"}}), 1);
  EXPECT_EQ(seen.value("choral:adapters", {{"state", "resident"}}), 1);
  EXPECT_EQ(seen.value("choral:adapters", {{"state", "on_disk"}}), 1);
  EXPECT_EQ(seen.value("choral:adapter_loads_total"), 6);
  EXPECT_EQ(seen.value("choral:adapter_evictions_total"), 1);
  EXPECT_EQ(seen.value("choral:fallbacks"), 2);
  EXPECT_GT(seen.value("process_resident_memory_bytes").value_or(0), 1e6);
  EXPECT_GT(seen.value("process_open_fds").value_or(0), 2);
  EXPECT_GT(seen.value("process_start_time_seconds").value_or(0), 1.6e9);
  EXPECT_TRUE(seen.value("process_cpu_seconds_total").has_value());
}

TEST(Metrics, StepsAreCountedByTheirTokens) {
  const auto metrics = make();
  EngineView view;
  for (const int tokens : {1, 8, 9, 16385}) view.stats.step_tokens.add(tokens);
  const auto seen = scrape(*metrics, view);
  EXPECT_THAT(seen.faults(), IsEmpty());
  const auto until = [&seen](const std::string& bound) {
    return seen.value("vllm:iteration_tokens_total_bucket", {{"le", bound}});
  };
  EXPECT_EQ(until("1"), 1);
  EXPECT_EQ(until("8"), 2);
  EXPECT_EQ(until("16"), 3);
  EXPECT_EQ(until("16384"), 3);
  EXPECT_EQ(until("+Inf"), 4);
  EXPECT_EQ(seen.value("vllm:iteration_tokens_total_sum"), 1 + 8 + 9 + 16385);
}

TEST(Metrics, WhoWaitsWaitsForAReasonThatTheEngineTold) {
  const auto metrics = make();
  const auto seen = scrape(*metrics, {.stats = {.waiting = 3}, .activity = {.waiting = 5, .deferred = 2}});
  EXPECT_EQ(seen.value("vllm:num_requests_waiting_by_reason", {{"reason", "capacity"}}), 3);
  EXPECT_EQ(seen.value("vllm:num_requests_waiting_by_reason", {{"reason", "deferred"}}), 2);
}

TEST(Metrics, AStepHasAnAgeWhileItIsComputed) {
  const auto metrics = make();
  const auto busy = scrape(*metrics, {.heartbeat = {.turn_age_s = 7, .silent_s = 5, .limit_s = 90, .step_tokens = 800}});
  EXPECT_EQ(busy.value("choral:engine_turn_age_seconds"), 7);
  EXPECT_EQ(busy.value("choral:engine_step_age_seconds"), 5);
  EXPECT_EQ(busy.value("choral:engine_step_tokens"), 800);
  EXPECT_EQ(busy.value("choral:engine_step_limit_seconds"), 90);
  const auto between = scrape(*metrics, {.heartbeat = {.silent_s = 5}});
  EXPECT_EQ(between.value("choral:engine_step_age_seconds"), 0);
}

TEST(Metrics, TheEndpointPickersGaugeIsOneSeriesWithATimeForItsValue) {
  const auto metrics = make(3, {.max_cpu_loras = 8});
  EngineView view{.adapters = {adapter("a", AdapterState::kResident), adapter("comma,name", AdapterState::kResident),
                               adapter("b", AdapterState::kResident), adapter("c", AdapterState::kLoading),
                               adapter("d", AdapterState::kOnDisk)}};
  auto info = scrape(*metrics, view).all("vllm:lora_requests_info");
  ASSERT_EQ(info.size(), 1U);
  EXPECT_EQ(info[0].value, 1.5e9);
  EXPECT_EQ(info[0].labels, (SampleLabels{{"max_lora", "8"}, {"running_lora_adapters", "a,b"}, {"waiting_lora_adapters", "c"}}));
  view.activity = EngineActivity{.running_adapters = {"b"}, .waiting_adapters = {"a", "e"}};
  EXPECT_EQ(scrape(*metrics, view).all("vllm:lora_requests_info").front().labels.at("waiting_lora_adapters"), "a,c,e");
  view.activity = {};
  view.adapters.clear();
  info = scrape(*metrics, view).all("vllm:lora_requests_info");
  ASSERT_EQ(info.size(), 1U) << "the old labels are gone";
  EXPECT_EQ(info[0].labels.at("running_lora_adapters"), "");

  for (int i = 0; i < 3000; ++i) {
    view.adapters.push_back(adapter("adapter-with-a-long-name-" + std::to_string(i), AdapterState::kResident, 0, i == 2999));
  }
  info = scrape(*metrics, view).all("vllm:lora_requests_info");
  EXPECT_LE(info[0].labels.at("running_lora_adapters").size(), 32U << 10);
  EXPECT_NE(info[0].labels.at("running_lora_adapters").find("-2999"), std::string::npos) << "who is in use is named first of all";
}

TEST(Metrics, APickerIsToldOfEveryAdapterThatIsReady) {
  const auto metrics = make(3, {.max_cpu_loras = 8});
  EngineView view{.adapters = {adapter("a", AdapterState::kResident), adapter("b", AdapterState::kResident),
                               adapter("c", AdapterState::kLoading), adapter("d", AdapterState::kOnDisk)}};
  view.adapters[1].pinned = true;
  view.adapters[1].rank = 16;
  view.stats.adapter_load_seconds.add(0.02);
  view.stats.adapter_load_seconds.add(3);
  auto seen = scrape(*metrics, view);
  EXPECT_THAT(seen.faults(), IsEmpty());
  const auto loaded = seen.all("vllm:lora_adapter_loaded");
  ASSERT_EQ(loaded.size(), 2U);
  const auto with = [](const char* name, const char* pinned, const char* rank) {
    return SampleLabels{{"adapter_name", name}, {"engine", "0"},    {"level", "gpu"},
                        {"model_name", "tiny"}, {"pinned", pinned}, {"rank", rank}};
  };
  EXPECT_EQ(loaded[0].labels, with("b", "true", "16"));
  EXPECT_EQ(loaded[1].labels, with("a", "false", "0"));
  EXPECT_EQ(seen.value("vllm:num_gpu_loaded_lora_adapters"), 2);
  EXPECT_EQ(seen.value("vllm:num_cpu_loaded_lora_adapters"), 0);
  EXPECT_EQ(seen.value("vllm:max_gpu_lora_adapters"), 8);
  EXPECT_EQ(seen.value("vllm:lora_adapter_load_seconds_bucket", {{"le", "0.025"}}), 1);
  EXPECT_EQ(seen.value("vllm:lora_adapter_load_seconds_bucket", {{"le", "2.5"}}), 1);
  EXPECT_EQ(seen.value("vllm:lora_adapter_load_seconds_count"), 2);
  EXPECT_EQ(seen.value("vllm:lora_adapter_load_seconds_sum"), 3.02);

  for (int i = 0; i < 3000; ++i)
    view.adapters.push_back(adapter("more-" + std::to_string(i), AdapterState::kResident, 0, i == 2999));
  seen = scrape(*metrics, view);
  const auto named = seen.all("vllm:lora_adapter_loaded");
  EXPECT_EQ(named.size(), 1000U);
  EXPECT_TRUE(std::any_of(named.begin(), named.end(), [](const auto& s) { return s.labels.at("adapter_name") == "more-2999"; }));
  EXPECT_EQ(seen.value("vllm:num_gpu_loaded_lora_adapters"), 3002) << "the number counts them all";
}

TEST(Metrics, ManyThreadsLoseNothing) {
  const auto metrics = make(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&metrics, t] {
      for (int i = 0; i < 200; ++i) {
        serve_one(*metrics, use("adapter-" + std::to_string((t + i) % 5)));
        metrics->http_answer("/v1/completions", 200 + i % 3);
        if (i % 50 == 0) scrape(*metrics);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const auto seen = scrape(*metrics);
  EXPECT_THAT(seen.faults(), IsEmpty());
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "stop"}}), 800);
  double answers = 0, by_adapter = 0;
  for (const auto& sample : seen.all("choral:http_requests_total")) answers += sample.value;
  for (const auto& sample : seen.all("choral:adapter_requests_total")) by_adapter += sample.value;
  EXPECT_EQ(answers, 800);
  EXPECT_GT(by_adapter, 0) << "adapters that no scrape lists give their series back, and what they counted with them";
}

TEST(Metrics, RoutesAreBounded) {
  const auto metrics = make();
  for (int i = 0; i < 2000; ++i) metrics->http_answer("/route-" + std::to_string(i), 200);
  const auto seen = scrape(*metrics);
  EXPECT_LE(seen.all("choral:http_requests_total").size(), 513U);
  EXPECT_EQ(seen.value("choral:http_requests_total", {{"route", "other"}}), 2000 - 512);
}

// A board that asks for what nobody emits shows empty panels and no error.
TEST(Metrics, EverythingThatTheBoardAsksForIsThere) {
  std::ifstream file(CHORAL_TEST_DATA "/../../docs/serving/grafana.json");
  std::stringstream text;
  text << file.rdbuf();
  const auto board = nlohmann::json::parse(text.str());
  const auto metrics = make();
  serve_one(*metrics, use("sql"));
  metrics->http_answer("/v1/completions", 200);
  std::set<std::string> emitted;
  const Exposition seen = scrape(*metrics, {});
  for (const auto& sample : seen.samples()) emitted.insert(sample.name);
  static const std::regex kName("\\b(?:vllm:|choral:|process_)[a-z0-9_]+");
  int queries = 0;
  for (const auto& panel : board.at("panels")) {
    if (!panel.contains("targets")) continue;
    for (const auto& target : panel.at("targets")) {
      const std::string query = target.at("expr");
      const std::sregex_iterator names(query.begin(), query.end(), kName);
      EXPECT_NE(names, std::sregex_iterator()) << query;
      for (auto it = names; it != std::sregex_iterator(); ++it) EXPECT_THAT(emitted, Contains(it->str())) << query;
      ++queries;
    }
  }
  EXPECT_GE(queries, 20);
}

TEST(Exposition, TheReaderFindsFaults) {
  const std::string good = "# HELP a_total x\n# TYPE a_total counter\na_total{k=\"v\"} 1\n";
  EXPECT_THAT(Exposition(good).faults(), IsEmpty());
  for (const std::string& bad :
       {std::string("a_total 1\n"), good + "a_total{k=\"v\"} 2\n", good + "b_total 1\n", good + good,
        std::string("# HELP a x\n# TYPE a counter\na 1\n"), std::string("# HELP a x\n# TYPE a gauge\na{k=\"v} 1\n"),
        std::string("# HELP a x\n# TYPE a gauge\na nan\n"), std::string("# HELP a x\n# TYPE a gauge\na 1"),
        std::string("# HELP a x\n# TYPE a gauge\na{k=\"\xFF\"} 1\n"),
        std::string("# HELP h x\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n"),
        std::string("# HELP h x\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_sum 1\nh_count 1\n")}) {
    EXPECT_THAT(Exposition(bad).faults(), Not(IsEmpty())) << bad;
  }
}

}  // namespace
}  // namespace choral::serve
