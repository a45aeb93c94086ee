#include "bench_speculation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/size_text.h"
#include "base/system_error.h"
#include "bench_page.h"
#include "line_reader.h"
#include "requests/request_line.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostPrompts = 1024;
constexpr int kUsualTokens = 256;

struct PromptFileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

SamplingParams bench_sampling() {
  SamplingParams sampling;
  sampling.temperature = 0;
  sampling.max_tokens = kUsualTokens;
  sampling.seed = 1;  // the same for each run, where a line draws
  return sampling;
}

Result<BenchPrompt> read_prompt(std::string_view line, int64_t number, requests::RequestLineReader& reader) {
  requests::RequestLine read;
  if (line.front() == '{') {
    CHORAL_RETURN_IF_ERROR(reader.read(line, read));
    if (!read.request.gives_text()) return invalid_argument("it asks for no answer, of which tokens could be guessed");
    if (read.request.most_guessed >= 0)
      return invalid_argument("whether tokens are guessed is what is compared; leave `speculative` out");
  } else {
    read.request.prompt = line;
    read.request.sampling = bench_sampling();
  }
  std::string name = read.request.id.empty() ? fmt::format("line {}", number) : read.request.id;
  read.request.id.clear();  // each runs many times
  return BenchPrompt{std::move(name), std::move(read.request)};
}

struct Run {
  double seconds = 0;
  std::vector<RequestOutput> outputs = {};
};

// `batch` at a time, the prompts in turn; each wave ends before the next begins. Cases hear nothing of each other's answers.
Result<Run> run_all(LLM& llm, std::span<const BenchPrompt> prompts, const SpeculationCase& of, bool guesses) {
  Run run;
  const auto width = static_cast<size_t>(of.batch);
  for (size_t at = 0; at < std::max(prompts.size(), width); at += width) {
    std::vector<Request> wave;
    for (size_t i = 0; i < width; ++i) {
      wave.push_back(prompts[(at + i) % prompts.size()].request);
      wave.back().cache_salt += of.name;
      if (!guesses) wave.back().most_guessed = 0;
    }
    const double begin = now_s();
    auto outputs = llm.generate(std::move(wave));
    run.seconds += now_s() - begin;
    for (size_t i = 0; i < width; ++i) {
      if (!outputs[i].status.ok()) return std::move(outputs[i].status).while_(prompts[(at + i) % prompts.size()].name);
      run.outputs.push_back(std::move(outputs[i]));
    }
  }
  return run;
}

Status check_same(const std::vector<RequestOutput>& a, const std::vector<RequestOutput>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t n = 0; n < a[i].completions.size(); ++n) {
      const auto &plain = a[i].completions[n].token_ids, &guessed = b[i].completions[n].token_ids;
      if (plain == guessed) continue;
      const auto [differs, other] = std::mismatch(plain.begin(), plain.end(), guessed.begin(), guessed.end());
      return internal_error("an answer differs from that of the first run, from token {} on; guesses and neighbours change none",
                            differs - plain.begin());
    }
  }
  return {};
}

void add_answers(const Run& run, SpeculationCase& to) {
  for (const auto& output : run.outputs) {
    for (const auto& completion : output.completions) {
      to.tokens += std::ssize(completion.token_ids);
      to.guesses += completion.guesses;
    }
  }
}

// The engine counts what an answer leaves behind it when its turn ends, which may be after the answer is here.
bool keeps_ended_answers(LLM& llm) {
  while (llm.stats().running > 0) std::this_thread::yield();
  return llm.stats().speculation.traffic_bytes > 0;
}

// Two where ended answers are guessed from and come again.
Result<std::vector<SpeculationCase>> measure_case(LLM& llm, std::span<const BenchPrompt> prompts, const SpeculationCase& wanted,
                                                  int rounds) {
  CHORAL_TRY(const Run first, run_all(llm, prompts, wanted, /*guesses=*/false));  // not timed: it reads the prompts
  std::vector<double> plain_s, guessing_s;
  std::vector<SpeculationCase> found;
  for (int round = 0; round < rounds; ++round) {
    SpeculationCase now = wanted;
    for (const bool guesses : {round % 2 != 0, round % 2 == 0}) {  // each of the two goes first in turn
      CHORAL_TRY(const Run run, run_all(llm, prompts, wanted, guesses));
      CHORAL_RETURN_IF_ERROR(check_same(first.outputs, run.outputs).while_(wanted.name));
      (guesses ? guessing_s : plain_s).push_back(run.seconds);
      if (guesses) add_answers(run, now);
    }
    if (keeps_ended_answers(llm)) now.heard = round == 0 ? HeardBefore::kNotTheAnswer : HeardBefore::kTheAnswer;
    if (found.empty() || found.back().heard != now.heard) found.push_back(wanted);
    now.guessing_s = guessing_s.back();
    found.back() = std::move(now);
  }
  for (auto& each : found) each.plain_s = median(plain_s);
  if (found.size() > 1) guessing_s.erase(guessing_s.begin());
  if (found.back().heard != HeardBefore::kNotTheAnswer) found.back().guessing_s = median(std::move(guessing_s));
  return found;
}

// Each alone, together.
SpeculationCase sum_of(std::span<const SpeculationCase> cases, HeardBefore heard) {
  SpeculationCase sum{.name = "all, one at a time", .heard = heard};
  for (const auto& c : cases) {
    if (c.heard != heard) continue;
    sum.tokens += c.tokens;
    sum.guesses += c.guesses;
    sum.plain_s += c.plain_s;
    sum.guessing_s += c.guessing_s;
  }
  return sum;
}

std::string_view word_of(HeardBefore heard) {
  return heard == HeardBefore::kNothing ? "" : heard == HeardBefore::kNotTheAnswer ? "new" : "again";
}

std::string full_name(const SpeculationCase& c) {
  return c.heard == HeardBefore::kNothing ? c.name : fmt::format("{}, {}", c.name, word_of(c.heard));
}

double per_second(const SpeculationCase& c, double seconds) { return static_cast<double>(c.tokens) / seconds; }

}  // namespace

Result<std::vector<BenchPrompt>> read_bench_prompts(const std::string& path) {
  const std::unique_ptr<std::FILE, PromptFileCloser> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return system_error(errno, fmt::format("cannot open {}", path));
  requests::RequestLineReader reader(bench_sampling(), {});
  std::vector<BenchPrompt> prompts;
  LineReader lines(file.get());
  for (std::string line; lines.next(line);) {
    if (lines.too_long())
      return too_large("{}, line {} has more than {}", path, lines.number(), size_text(LineReader::kMaxBytes));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (prompts.size() == kMostPrompts) return too_large("{} has more than {} prompts; give a part of it", path, kMostPrompts);
    auto prompt = read_prompt(line, lines.number(), reader);
    if (!prompt.ok()) return std::move(prompt).status().while_(fmt::format("{}, line {}", path, lines.number()));
    prompts.push_back(std::move(*prompt));
  }
  if (std::ferror(file.get()) != 0) return invalid_argument("{} cannot be read", path);
  if (prompts.empty()) return invalid_argument("{} has no prompts; give one a line", path);
  return prompts;
}

Result<SpeculationReport> measure_speculation(LLM& llm, const std::vector<BenchPrompt>& prompts, const std::vector<int>& batches,
                                              int rounds, Progress& progress) {
  if (llm.info().most_guessed == 0)
    return invalid_argument(
        "this engine guesses no tokens: without --speculative off, and with a model that gives text, it does");
  SpeculationReport report{.rounds = rounds, .cases = {}};
  const size_t total = std::accumulate(batches.begin(), batches.end(), size_t{0},
                                       [&](size_t sum, int batch) { return sum + (batch == 1 ? prompts.size() : 1); });
  size_t done = 0;
  const auto measure = [&](std::string name, std::span<const BenchPrompt> of, int batch) -> Status {
    progress.update(name, static_cast<double>(done++) / static_cast<double>(total));
    CHORAL_TRY(auto found, measure_case(llm, of, {.name = std::move(name), .batch = batch}, rounds));
    std::move(found.begin(), found.end(), std::back_inserter(report.cases));
    return {};
  };
  for (const int batch : batches) {
    if (batch > 1) {
      CHORAL_RETURN_IF_ERROR(measure(fmt::format("all, {} at a time", batch), prompts, batch));
      continue;
    }
    const size_t first = report.cases.size();
    for (const auto& prompt : prompts) CHORAL_RETURN_IF_ERROR(measure(prompt.name, std::span(&prompt, 1), 1));
    if (prompts.size() == 1) continue;
    for (const auto heard : {HeardBefore::kNothing, HeardBefore::kNotTheAnswer, HeardBefore::kTheAnswer}) {
      if (auto sum = sum_of(std::span(report.cases).subspan(first), heard); sum.tokens > 0)
        report.cases.push_back(std::move(sum));
    }
  }
  return report;
}

TextTable speculation_table(const SpeculationReport& report) {
  constexpr double kPercent = 100;
  int width = 6;
  for (const auto& c : report.cases) width = std::max(width, static_cast<int>(full_name(c).size()));
  TextTable table("prompt", std::min(width, 40));
  table.add_column("tokens", 7);
  table.add_column("guessed", 8);
  table.add_column("% right", 8);
  table.add_column("a step", 7);
  table.add_column("plain tok/s", 12);
  table.add_column("guessing tok/s", 15);
  table.add_column("gain", 6);
  for (const auto& c : report.cases) {
    table.add_row({full_name(c), fmt::format("{}", c.tokens), fmt::format("{}", c.guesses.guessed),
                   c.guesses.guessed > 0 ? fmt::format("{:.0f}", kPercent * c.right_share()) : "",
                   fmt::format("{:.2f}", c.tokens_per_step()), fmt::format("{:.1f}", per_second(c, c.plain_s)),
                   fmt::format("{:.1f}", per_second(c, c.guessing_s)), fmt::format("{:.2f}", c.gain())});
  }
  return table;
}

std::string speculation_remark(const SpeculationReport& report) {
  const bool heard = std::any_of(report.cases.begin(), report.cases.end(),
                                 [](const SpeculationCase& c) { return c.heard != HeardBefore::kNothing; });
  return heard ? fmt::format("{} {}", kSpeculationRemark, kTrafficRemark) : std::string(kSpeculationRemark);
}

Json speculation_json(const SpeculationReport& report) {
  Json cases = Json::array();
  for (const auto& c : report.cases) {
    cases.push_back({{"name", c.name},
                     {"batch", c.batch},
                     {"answer_heard_before", c.heard == HeardBefore::kTheAnswer},
                     {"tokens", c.tokens},
                     {"guessed_tokens", c.guesses.guessed},
                     {"right_guesses", c.guesses.right},
                     {"of_prediction", c.guesses.predicted},
                     {"tokens_per_step", c.tokens_per_step()},
                     {"plain_tokens_per_s", per_second(c, c.plain_s)},
                     {"guessing_tokens_per_s", per_second(c, c.guessing_s)},
                     {"gain", c.gain()}});
  }
  return {{"rounds", report.rounds}, {"answers_are_equal", true}, {"results", std::move(cases)}};
}

void add_speculation_report(const SpeculationReport& report, HtmlPage& to) {
  to.add_heading("Guessed tokens");
  HtmlTable table = html_table("", speculation_table(report));
  for (const size_t column : {5, 6, 7}) draw_bars(table, column, 0);
  to.add_table(table);
  to.add_text(speculation_remark(report));
}

}  // namespace choral::apps
