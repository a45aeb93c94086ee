#include "tools/load_generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "io/config_map.h"
#include "support/temp_dir.h"
#include "tools/load/scripted_server_test.h"

namespace choral::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

const std::string kUsage = event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}})");
const std::string kEnd = event(R"({"choices":[{"index":0,"text":"","finish_reason":"length"}]})");
const std::string kDone = event("[DONE]");

Script good_stream() {
  return {{stream_head(), chunk(token("a")), chunk(token("b")), chunk(token("c") + kEnd), chunk(kUsage + kDone), chunk("")}};
}

LoadOptions options(const ScriptedServer& server) {
  return {
      .url = server.url(), .model = "m", .concurrency = 2, .requests = 6, .prompt_tokens = 5, .max_tokens = 5, .timeout_s = 60};
}

LoadReport run(const LoadOptions& options) {
  auto generator = LoadGenerator::make(options);
  CHORAL_CHECK(generator.ok(), generator.status().message());
  auto report = (*generator)->run({});
  CHORAL_CHECK(report.ok(), report.status().message());
  return std::move(*report);
}

TEST(LoadGenerator, StreamsAreCountedAndConnectionsKept) {
  const ScriptedServer server([](const Asked&) { return good_stream(); });
  const auto report = run(options(server));
  EXPECT_EQ(report.sent, 6);
  EXPECT_EQ(report.finished, 6);
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_EQ(report.prompt_tokens, 54);
  EXPECT_EQ(report.output_tokens, 30);
  EXPECT_FALSE(report.counted_pieces);
  EXPECT_EQ(report.first_token.count, 6);
  EXPECT_EQ(report.between_tokens.count, 12);
  EXPECT_EQ(report.whole.count, 6);
  EXPECT_LE(report.first_token.p50, report.whole.max);
  EXPECT_EQ(server.connections(), 2);
  EXPECT_LE(server.most_at_once(), 2);
}

TEST(LoadGenerator, AStreamInPiecesOfOneByteIsTheSame) {
  std::string all;
  for (const auto& piece : good_stream().pieces) all += piece;
  const ScriptedServer server([&all](const Asked&) {
    Script script;
    for (const char c : all) script.pieces.emplace_back(1, c);
    return script;
  });
  auto asked = options(server);
  asked.requests = 2;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 2);
  EXPECT_EQ(report.output_tokens, 10);
  EXPECT_EQ(report.between_tokens.count, 4);
}

TEST(LoadGenerator, RequestsSayWhatWasAskedFor) {
  std::mutex mutex;
  std::vector<Asked> all;
  const ScriptedServer server([&](const Asked& asked) {
    const std::lock_guard lock(mutex);
    all.push_back(asked);
    return good_stream();
  });
  auto asked = options(server);
  asked.url += "/some/where/v1/";
  asked.chat = true;
  asked.api_key = "secret";
  asked.adapters = {"base", "sql", "yoda"};
  asked.shared_tokens = 3;
  const auto report = run(asked);
  EXPECT_THAT(report.by_model, ElementsAre(Pair("m", 2), Pair("sql", 2), Pair("yoda", 2)));
  std::set<std::string> prompts, beginnings;
  for (const auto& one : all) {
    EXPECT_THAT(one.head, HasSubstr("POST /some/where/v1/chat/completions HTTP/1.1\r\n"));
    EXPECT_THAT(one.head, HasSubstr("Authorization: Bearer secret\r\n"));
    EXPECT_THAT(one.head, HasSubstr("Content-Type: application/json\r\n"));
    const auto body = io::ConfigMap::parse_json(one.body, "body");
    ASSERT_TRUE(body.ok()) << one.body;
    EXPECT_EQ(*body->get_int("max_tokens"), 5);
    EXPECT_EQ(*body->get_bool("ignore_eos"), true);
    EXPECT_EQ(*body->get_map("stream_options")->get_bool("include_usage"), true);
    const std::string prompt = *body->get_maps("messages")->front().get_string("content");
    EXPECT_EQ(std::count(prompt.begin(), prompt.end(), ' '), 5) << "as many words as tokens were asked for";
    prompts.insert(prompt);
    size_t third = 0;
    for (int i = 0; i < 4; ++i) third = prompt.find(' ', third) + 1;
    beginnings.insert(prompt.substr(0, third));
  }
  EXPECT_GT(prompts.size(), 1U);
  EXPECT_EQ(beginnings.size(), 1U);
}

TEST(LoadGenerator, EveryKindOfFailureHasItsName) {
  struct Case {
    std::string kind, words;
    Script script;
  };
  const std::vector<Case> cases{
      {"429", "too many", {{whole(429, R"({"error":{"message":"too many\u001b[31m","type":"x"}})")}}},
      {"503", "loading", {{whole(503, "loading", "text/plain")}}},
      {"stream",
       "boom",
       {{stream_head(), chunk(token("a")), chunk(event(R"({"error":{"message":"boom"}})") + kDone), chunk("")}}},
      {"incomplete", "[DONE]", {{stream_head(), chunk(token("a")), chunk("")}}},
      {"protocol", "closed", {{stream_head(), chunk(token("a"))}, 0, true}},
      {"protocol", "closed", {{"HTTP/1.1 200 OK\r\nContent-Le"}, 0, true}},
      {"protocol", "", {{"SSH-2.0-OpenSSH\r\n\r\n"}, 0, true}},
      {"protocol", "", {{"HTTP/1.1 200 OK\r\nX: " + std::string(200'000, 'x') + "\r\n\r\n"}, 0, true}},
      {"protocol", "", {{"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n"}, 0, true}},
      {"protocol", "choices", {{stream_head(), chunk(event("{}")), chunk("")}}},
      {"protocol", "JSON", {{stream_head(), chunk(event("{\"choices\"")), chunk("")}}},
      {"protocol", "", {{whole(200, std::string(70, '['))}}},
      {"incomplete", "finish_reason", {{whole(200, R"({"choices":[{"text":"a"}]})")}}},
      {"timeout", "time limit", {{stream_head(), chunk(token("a"))}, 0, false, true}},
      {"timeout", "time limit", {{}, 0, false, true}},
  };
  for (const auto& one : cases) {
    const ScriptedServer server([&one](const Asked&) { return one.script; });
    auto asked = options(server);
    asked.requests = 1;
    if (one.kind == "timeout") asked.timeout_s = 0.2;
    const auto report = run(asked);
    EXPECT_EQ(report.finished, 0);
    ASSERT_THAT(report.errors, ElementsAre(Pair(one.kind, 1))) << report.examples.begin()->second;
    EXPECT_THAT(report.examples.at(one.kind), HasSubstr(one.words));
    EXPECT_EQ(report.examples.at(one.kind).find('\x1b'), std::string::npos) << "a server must not drive the terminal";
  }
}

TEST(LoadGenerator, AnErrorLeavesTheOthersAlone) {
  std::atomic<int> number{0};
  const ScriptedServer server([&number](const Asked&) { return ++number % 3 == 0 ? Script{{whole(429, "{}")}} : good_stream(); });
  auto asked = options(server);
  asked.requests = 9;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 6);
  EXPECT_THAT(report.errors, ElementsAre(Pair("429", 3)));
}

TEST(LoadGenerator, AKeptConnectionThatWasClosedIsMadeAnew) {
  const ScriptedServer server([](const Asked& asked) {
    if (asked.on_connection == 2) return Script{{}, 0, true};  // as a server that had closed it before the request came
    return good_stream();
  });
  auto asked = options(server);
  asked.concurrency = 1;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 6);
  EXPECT_THAT(report.errors, IsEmpty());
  EXPECT_EQ(server.connections(), 6);
}

TEST(LoadGenerator, AServerThatClosesEachConnectionIsServedTheSame) {
  const ScriptedServer server([](const Asked&) {
    return Script{
        {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n" + token("a") + kUsage + kDone},
        0,
        true};
  });
  const auto report = run(options(server));
  EXPECT_EQ(report.finished, 6);
  EXPECT_EQ(server.connections(), 6);
}

TEST(LoadGenerator, AnswersWithoutStreamHaveOnlyTheirWholeTime) {
  const ScriptedServer server([](const Asked& asked) {
    EXPECT_THAT(asked.body, HasSubstr("\"stream\": false"));
    return Script{{whole(
        200, R"({"choices":[{"text":"abc","finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":5}})")}};
  });
  auto asked = options(server);
  asked.stream = false;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 6);
  EXPECT_EQ(report.output_tokens, 30);
  EXPECT_EQ(report.first_token.count, 0);
  EXPECT_EQ(report.whole.count, 6);
}

TEST(LoadGenerator, WithARateRequestsDoNotWaitForAnswers) {
  const ScriptedServer server([](const Asked&) {
    Script script = good_stream();
    script.pause_ms = 20;
    return script;
  });
  auto asked = options(server);
  asked.rate = 10'000;
  asked.concurrency = 100;
  asked.requests = 12;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 12);
  EXPECT_GT(server.most_at_once(), 3);
}

TEST(LoadGenerator, WhatIsDueAndFindsNoPlaceIsTimedFromThen) {
  const ScriptedServer server([](const Asked&) {
    Script script = good_stream();
    script.pause_ms = 10;
    return script;
  });
  auto asked = options(server);
  asked.rate = 10'000;
  asked.concurrency = 1;
  const auto report = run(asked);
  EXPECT_EQ(report.finished, 6);
  EXPECT_EQ(server.most_at_once(), 1);
  EXPECT_GE(report.whole.max, 5 * 0.05) << "the last of six waited for the other five, which took 60 ms each at least";
}

TEST(LoadGenerator, ADurationEndsTheLoad) {
  const ScriptedServer server([](const Asked&) { return good_stream(); });
  auto asked = options(server);
  asked.requests = 0;
  asked.duration_s = 0.2;
  const auto report = run(asked);
  EXPECT_GT(report.finished, 0);
  EXPECT_EQ(report.finished, report.sent);
}

TEST(LoadGenerator, StopGivesUpWhatIsInFlight) {
  const ScriptedServer server([](const Asked&) { return Script{{stream_head(), chunk(token("a"))}, 0, false, true}; });
  auto generator = LoadGenerator::make(options(server));
  ASSERT_TRUE(generator.ok());
  const auto report = (*generator)->run([&](const TrafficProgress& progress) {
    if (progress.elapsed_s > 0.15) (*generator)->stop();
  });
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(report->stopped);
  EXPECT_THAT(report->errors, ElementsAre(Pair("stopped", 2)));
}

TEST(LoadGenerator, TheModelIsAskedFor) {
  const ScriptedServer server([](const Asked& asked) {
    if (asked.head.starts_with("GET /v1/models ")) return Script{{whole(200, R"({"data":[{"id":"first"},{"id":"b"}]})")}};
    EXPECT_THAT(asked.body, HasSubstr("\"model\": \"first\""));
    return good_stream();
  });
  auto asked = options(server);
  asked.model.clear();
  EXPECT_EQ(run(asked).model, "first");
}

TEST(LoadGenerator, UnixSockets) {
  const testing::TempDir folder;
  const ScriptedServer server([](const Asked&) { return good_stream(); }, folder / "s");
  EXPECT_EQ(run(options(server)).finished, 6);
}

TEST(LoadGenerator, NoServerIsOneError) {
  std::string url;
  {
    const ScriptedServer gone([](const Asked&) { return Script{}; });
    url = gone.url();
  }
  auto generator = LoadGenerator::make({.url = url, .model = "m", .requests = 2});
  ASSERT_TRUE(generator.ok());
  const auto report = (*generator)->run({});
  EXPECT_EQ(report.status().code(), Code::kUnavailable);
  EXPECT_THAT(report.status().message(), HasSubstr(url));
}

TEST(LoadGenerator, OptionsAreChecked) {
  const auto code = [](const LoadOptions& o) { return LoadGenerator::make(o).status().code(); };
  EXPECT_EQ(code({.concurrency = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.rate = -1}), Code::kInvalidArgument);
  EXPECT_EQ(code({.requests = 0}), Code::kInvalidArgument);
  EXPECT_EQ(code({.prompt_tokens = 4, .shared_tokens = 5}), Code::kInvalidArgument);
  EXPECT_EQ(code({.url = "ftp://x"}), Code::kInvalidArgument);
  EXPECT_EQ(code({.api_key = "a\r\nX: y"}), Code::kInvalidArgument);
}

}  // namespace
}  // namespace choral::tools
