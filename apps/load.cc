// `choral load`: load on a server that speaks OpenAI's API, and what its clients would have felt.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "answer_layout.h"
#include "base/printable.h"
#include "command.h"
#include "interrupts.h"
#include "load_report.h"
#include "output_file.h"
#include "progress.h"
#include "terminal_text.h"
#include "text_table.h"
#include "tools/load_generator.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using tools::LatencySummary;
using tools::LoadGenerator;
using tools::LoadOptions;
using tools::LoadReport;

struct LoadFlags {
  LoadOptions load;
  std::optional<int64_t> requests;
  std::string skew = "in-turn";
  bool whole = false;
  bool stop_at_eos = false;
  bool json = false;
  bool quiet = false;
};

double per_second(int64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

std::string report_json(const LoadReport& r, const LoadFlags& flags) {
  const auto& o = flags.load;
  const Json all{{"url", o.url},
                 {"model", r.model},
                 {"endpoint", o.chat ? "chat" : "completions"},
                 {"stream", o.stream},
                 {"concurrency", o.concurrency},
                 {"rate", o.rate},
                 {"prompt_words", o.prompt_tokens},
                 {"max_tokens", o.max_tokens},
                 {"skew", flags.skew},
                 {"seed", o.seed},
                 {"wall_s", r.wall_s},
                 {"sent", r.sent},
                 {"finished", r.finished},
                 {"errors", r.errors},
                 {"error_examples", r.examples},
                 {"stopped", r.stopped},
                 {"requests_per_s", per_second(r.finished, r.wall_s)},
                 {"prompt_tokens", r.prompt_tokens},
                 {"output_tokens", r.output_tokens},
                 {"output_tokens_per_s", per_second(r.output_tokens, r.wall_s)},
                 {"total_tokens_per_s", per_second(r.prompt_tokens + r.output_tokens, r.wall_s)},
                 {"counted_pieces", r.counted_pieces},
                 {"time_to_first_token", latency_json(r.first_token)},
                 {"inter_token_latency", latency_json(r.between_tokens)},
                 {"end_to_end", latency_json(r.whole)},
                 {"by_model", r.by_model}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_latency(TextTable& table, const char* name, const LatencySummary& s) {
  if (s.count == 0) return;
  std::vector<std::string> cells{name};
  for (const double seconds : {s.mean, s.p50, s.p90, s.p95, s.p99, s.max}) cells.push_back(fmt::format("{:.1f}", seconds * 1e3));
  table.add_row(std::move(cells));
}

std::string report_text(const LoadReport& r, int columns) {
  std::string out = fmt::format(
      "{} of {} requests answered in {:.2f} s{}: {:.2f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s with prompts{}\n",
      r.finished, r.sent, r.wall_s, r.stopped ? " (stopped)" : "", per_second(r.finished, r.wall_s),
      per_second(r.output_tokens, r.wall_s), per_second(r.prompt_tokens + r.output_tokens, r.wall_s),
      r.counted_pieces ? "\nThe server did not count tokens: pieces of the stream stand for them." : "");
  out = wrap_hanging(out, columns);
  if (r.whole.count > 0) {
    TextTable table("ms", 20);
    for (const char* heading : {"mean", "p50", "p90", "p95", "p99", "max"}) table.add_column(heading, 10);
    add_latency(table, "time to first token", r.first_token);
    add_latency(table, "between tokens", r.between_tokens);
    add_latency(table, "whole answer", r.whole);
    out += "\n" + table.text(columns);
  }
  std::string rest;
  if (!r.errors.empty()) rest += "\nNot answered:\n";
  for (const auto& [kind, count] : r.errors) rest += fmt::format("{:>8}  {:<12}{}\n", count, kind, r.examples.at(kind));
  if (r.by_model.size() > 1) {
    rest += "\nRequests by model:";
    for (const auto& [model, count] : r.by_model) rest += fmt::format(" {} {}", terminal_line(model), count);
    rest += "\n";
  }
  return out + wrap_hanging(rest, columns);
}

Status run(LoadFlags flags) {
  auto& load = flags.load;
  CHORAL_TRY(load.skew, adapter_skew_named(flags.skew));
  load.stream = !flags.whole;
  load.ignore_eos = !flags.stop_at_eos;
  load.requests = flags.requests.value_or(load.duration_s > 0 ? 0 : load.requests);

  CHORAL_TRY(const auto interrupts, Interrupts::make());
  CHORAL_TRY(const auto generator, LoadGenerator::make(load));
  Progress progress(flags.quiet);
  Result<LoadReport> report = Status(Code::kInternal, "not run");
  {
    const Interrupts::Scope scope(*interrupts, {.call = [&] { generator->stop(); }});
    report = generator->run([&](const tools::TrafficProgress& p) {
      const double by_count =
          load.requests > 0 ? static_cast<double>(p.finished + p.failed) / static_cast<double>(load.requests) : 0;
      const double by_time = load.duration_s > 0 ? p.elapsed_s / load.duration_s : 0;
      progress.update(fmt::format("{} sent, {} answered, {} failed", p.sent, p.finished, p.failed),
                      std::min(1.0, std::max(by_count, by_time)));
    });
  }
  progress.finish();
  CHORAL_RETURN_IF_ERROR(report.status());
  CHORAL_RETURN_IF_ERROR(print_out(flags.json ? report_json(*report, flags) : report_text(*report, terminal_columns())));
  if (report->finished == 0 && report->stopped) return cancelled("stopped before an answer was complete");
  if (report->finished == 0 && !report->errors.empty()) {
    const auto& [kind, words] = *report->examples.begin();
    return unavailable("no request was answered ({}: {})", kind, words);
  }
  return {};
}

}  // namespace

void add_load(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("load", "put load on a server that speaks OpenAI's API, and measure what its clients meet");
  const auto flags = std::make_shared<LoadFlags>();
  auto& load = flags->load;
  const auto option = [sub](const char* names, auto& value, const char* what, const char* type) {
    return sub->add_option(names, value, what)->type_name(type);
  };
  option("--url,--base-url", load.url, "of the server, without /v1 (http://127.0.0.1:8000)", "http[s]://HOST:PORT|unix:PATH");
  option("--model,-m", load.model, "whom to ask (the first that the server lists)", "NAME");
  option("--adapters", load.adapters, "ask these in place of the model, with commas; base is the model", "LIST")->delimiter(',');
  option("--skew", flags->skew, "which adapter comes next: in-turn, uniform, or zipf: the k-th with weight 1/k (in-turn)",
         "KIND");
  option("--concurrency", load.concurrency, "requests in flight; with --rate, the most there may be (8)", "N");
  option("--rate", load.rate, "requests a second, at random times; else the next follows an answer", "X");
  option("--requests", flags->requests, "how many (100, or no end with --duration)", "N");
  option("--duration", load.duration_s, "new requests for so many seconds", "S");
  option("--prompt-tokens", load.prompt_tokens, "words of each prompt, about a token each (64)", "N");
  option("--shared-tokens", load.shared_tokens, "of them, the same in every prompt (0)", "N");
  option("--max-tokens", load.max_tokens, "of each answer (64)", "N");
  option("--timeout", load.timeout_s, "of one request, in seconds (600)", "S");
  option("--seed", load.seed, "of prompts, adapters and times (0)", "N");
  option("--api-key", load.api_key, "sent as a bearer token", "KEY")->envname("OPENAI_API_KEY");
  sub->add_flag("--chat", load.chat, "ask /v1/chat/completions (else /v1/completions)");
  sub->add_flag("--no-stream", flags->whole, "wait for whole answers");
  sub->add_flag("--stop-at-eos", flags->stop_at_eos, "answers may end by themselves (else ignore_eos asks for --max-tokens)");
  sub->add_flag("--json", flags->json, "one JSON object");
  sub->add_flag("--quiet,-q", flags->quiet, "no progress");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
