// `choral plan`: how many servers a traffic needs, each a machine like this one, by steps that are measured here.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "answer_layout.h"
#include "base/clock.h"
#include "base/machine_facts.h"
#include "command.h"
#include "engine_flags.h"
#include "load_report.h"
#include "output_file.h"
#include "progress.h"
#include "terminal_text.h"
#include "text_table.h"
#include "timed_model.h"
#include "tools/fleet_plan.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using tools::FleetFigures;
using tools::FleetRouting;
using tools::StepCosts;
using tools::StepTimer;

constexpr int kMostReplicas = 1024;
constexpr int kMostTimedAdapters = 32;
constexpr double kMostSeconds = 15;  // that steps of one size may take; of larger ones none is timed then

struct PlanFlags : TimedModelFlags {
  tools::FleetTraffic traffic;
  std::vector<int> ranks{16};
  std::string skew = "zipf";
  double slo_ttft_s = 1;
  int replicas = 0;
  bool json = false;
  bool quick = false;
};

// What was measured of one server, and what follows from it.
struct Server {
  tools::TimedModel model;
  StepCosts costs;
  tools::ReplicaLimits limits;
  int64_t adapter_bytes = 0;  // of one, in memory
};

Status in_range(const char* flag, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  return invalid_argument("{} {}: give {} to {}", flag, value, least, most);
}

Status check_flags(PlanFlags& f) {
  auto& t = f.traffic;
  constexpr int kMostTokens = 1 << 20, kMostAdapters = 100'000;
  CHORAL_RETURN_IF_ERROR(in_range("--rate", t.rate, 0.001, 1e6));
  CHORAL_RETURN_IF_ERROR(in_range("--prompt-tokens", t.prompt_tokens, 1, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("--shared-tokens", t.shared_tokens, 0, t.prompt_tokens));
  CHORAL_RETURN_IF_ERROR(in_range("--max-tokens", t.max_tokens, 1, kMostTokens));
  CHORAL_RETURN_IF_ERROR(in_range("--adapters", t.adapters, 0, kMostAdapters));
  CHORAL_RETURN_IF_ERROR(in_range("--replicas", f.replicas, 0, kMostReplicas));
  CHORAL_RETURN_IF_ERROR(in_range("--slo-ttft", f.slo_ttft_s, 0.001, 3600));
  if (f.ranks.empty()) return invalid_argument("--ranks is empty");
  for (const int rank : f.ranks) CHORAL_RETURN_IF_ERROR(in_range("--ranks", rank, 1, StepTimer::kMaxAdapterRank));
  CHORAL_TRY(t.skew, adapter_skew_named(f.skew));
  return {};
}

// A few, up to as many as run together at most. What lies beyond what was timed goes on in a straight line.
std::vector<int> batches_of(const PlanFlags& f) {
  std::vector<int> batches;
  for (const int batch : {1, 4, 16, 64, StepTimer::kMaxBatch}) {
    const int fits = std::min(batch, f.engine.options.max_num_seqs);
    if (batches.empty() || fits > batches.back()) batches.push_back(fits);
  }
  return batches;
}

// Whether one that is `times` as large as the last, which began then, would be done in time.
bool is_in_time(double begun, double times) { return (now_s() - begun) * times <= kMostSeconds; }

// With adapters, each row's own; where there are fewer than rows, what one costs counts for each row.
void add_decode(int batch, const std::vector<tools::StepTiming>& timings, int timed_adapters, StepCosts& costs) {
  const double base = timings[0].median_s;
  costs.decode.push_back({batch, base});
  if (timings.size() < 2) return;
  const double each = std::max(timings[1].median_s - base, 0.0) / std::min(batch, timed_adapters);
  costs.adapted.push_back({batch, base + each * batch});
}

Status measure(StepTimer& timer, const PlanFlags& f, Progress& progress, Server& server) {
  const auto& t = f.traffic;
  const int steps = f.quick ? 4 : 16, repeats = f.quick ? 1 : 3;
  const auto longest = static_cast<int>(timer.model().max_model_len) - 1;
  if (t.prompt_tokens + t.max_tokens > longest)
    return invalid_argument("a prompt of {} tokens and an answer of {} are more than the model's {}", t.prompt_tokens,
                            t.max_tokens, longest + 1);
  const int timed = std::min(t.adapters, kMostTimedAdapters);
  for (int i = 0; i < timed; ++i) {
    progress.update("making adapters", static_cast<double>(i) / timed);
    CHORAL_TRY(const auto cost,
               timer.add_adapter(i + 1, f.ranks[static_cast<size_t>(i) % f.ranks.size()], static_cast<uint64_t>(i) + 1));
    server.costs.adapter_load_s += cost.pack_s / timed;
    server.adapter_bytes += cost.packed_bytes / timed;
  }
  std::vector<StepTimer::Cast> casts{{0}};
  if (timed > 0) {
    casts.emplace_back();
    for (int i = 0; i < timed; ++i) casts.back().push_back(i + 1);
  }
  const int context = std::clamp(t.prompt_tokens + t.max_tokens / 2, 1, longest - steps - 32);
  int last = 1;
  double begun = now_s();
  for (const int batch : batches_of(f)) {
    const std::vector<int> batches{batch}, prompt{1};
    if (batch > 1 && (!timer.check_room(batches, prompt, context, steps).ok() || !is_in_time(begun, batch / last))) break;
    progress.update(fmt::format("decode, batch {}", batch), Progress::kUnknown);
    begun = now_s();
    CHORAL_TRY(const auto timings, timer.decode(batch, context, steps, casts));
    add_decode(batch, timings, timed, server.costs);
    last = batch;
  }
  const std::vector<StepTimer::Cast> of_prompts{timed > 0 ? StepTimer::Cast{1} : StepTimer::Cast{0}};
  server.costs.prefill.push_back({1, server.costs.decode[0].seconds});
  for (const int tokens : {32, 128, 512}) {
    if (tokens > longest || (tokens > 32 && !is_in_time(begun, 4))) break;
    begun = now_s();
    progress.update(fmt::format("prompt of {} tokens", tokens), Progress::kUnknown);
    CHORAL_TRY(const auto timings, timer.prefill(tokens, repeats, of_prompts));
    server.costs.prefill.push_back({tokens, timings[0].median_s});
  }
  const auto& engine = f.engine.options;
  server.model = timer.model();
  server.limits = {.kv_tokens = server.model.kv_tokens,
                   .max_num_seqs = engine.max_num_seqs,
                   .max_num_batched_tokens = engine.max_num_batched_tokens,
                   .adapters = server.adapter_bytes > 0 ? server.model.adapter_bytes / server.adapter_bytes : 0};
  if (engine.max_cpu_loras > 0) server.limits.adapters = std::min<int64_t>(server.limits.adapters, engine.max_cpu_loras);
  return {};
}

struct Answer {
  int replicas = 0;  // 0: no number of them is enough
  double most_requests_per_s = 0;
  FleetFigures homes = {}, anywhere = {};
};

bool is_good(const FleetFigures& figures, const PlanFlags& f) {
  return figures.keeps_up && figures.first_token.p99 <= f.slo_ttft_s;
}

Answer answer(const Server& server, const PlanFlags& f, Progress& progress) {
  Answer answer{.most_requests_per_s = tools::most_requests_per_s(server.costs, server.limits, f.traffic)};
  const auto simulate = [&](FleetRouting routing, int replicas) {
    return tools::simulate_fleet(server.costs, server.limits, f.traffic, routing, replicas);
  };
  const double least = std::ceil(f.traffic.rate / answer.most_requests_per_s);
  const int first = f.replicas > 0 ? f.replicas : static_cast<int>(std::min<double>(std::max(least, 1.0), kMostReplicas));
  // One more each time, later some more: a fleet of hundreds is not told from one of a few more.
  for (int n = first; n <= kMostReplicas; n += std::max(1, n / 16)) {
    progress.update(fmt::format("{} servers", n), Progress::kUnknown);
    answer.homes = simulate(FleetRouting::kByAdapter, n);
    if (f.replicas == 0 && !is_good(answer.homes, f)) continue;
    answer.replicas = n;
    if (f.traffic.adapters > 0 && n > 1) answer.anywhere = simulate(FleetRouting::kRandom, n);
    return answer;
  }
  return answer;
}

Json figures_json(const FleetFigures& figures) {
  if (!figures.keeps_up) return nullptr;
  return {{"output_tokens_per_s", figures.tokens_per_s},
          {"batch", figures.batch},
          {"kv_tokens", figures.kv_tokens},
          {"hit_rate", figures.hit_rate},
          {"adapter_loads_per_s", figures.loads_per_s},
          {"time_to_first_token", latency_json(figures.first_token)},
          {"inter_token_latency", latency_json(figures.between_tokens)}};
}

Json points_json(const std::vector<StepCosts::Point>& points) {
  Json out = Json::array();
  for (const auto& point : points) out.push_back({{"rows", point.rows}, {"ms", point.seconds * 1e3}});
  return out;
}

std::string all_json(const Server& s, const PlanFlags& f, const Answer& a) {
  const auto& t = f.traffic;
  const Json all{{"model", s.model.name},
                 {"cpu", machine_facts().cpu_model},
                 {"cpu_level", s.model.cpu_level},
                 {"threads", s.model.threads},
                 {"traffic",
                  {{"rate", t.rate},
                   {"prompt_tokens", t.prompt_tokens},
                   {"shared_tokens", t.shared_tokens},
                   {"max_tokens", t.max_tokens},
                   {"adapters", t.adapters},
                   {"skew", f.skew},
                   {"ranks", f.ranks}}},
                 {"measured",
                  {{"decode", points_json(s.costs.decode)},
                   {"decode_with_adapters", points_json(s.costs.adapted)},
                   {"prefill", points_json(s.costs.prefill)},
                   {"adapter_load_ms", s.costs.adapter_load_s * 1e3},
                   {"adapter_bytes", s.adapter_bytes}}},
                 {"memory",
                  {{"weight_bytes", s.model.weight_bytes},
                   {"kv_cache_bytes", s.model.kv_bytes},
                   {"kv_cache_tokens", s.model.kv_tokens},
                   {"draft_model_bytes", s.model.draft_bytes},
                   {"adapters_with_room", s.limits.adapters}}},
                 {"most_requests_per_s", a.most_requests_per_s},
                 {"slo_ttft_s", f.slo_ttft_s},
                 {"replicas", a.replicas > 0 ? Json(a.replicas) : Json()},
                 {"by_adapter", figures_json(a.homes)},
                 {"at_random", figures_json(a.anywhere)}};
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string ms(double seconds) { return fmt::format("{:.1f}", seconds * 1e3); }

void add_row(TextTable& table, const char* name, const FleetFigures& figures) {
  if (!figures.keeps_up) return;
  table.add_row({name, fmt::format("{:.1f}", figures.tokens_per_s), fmt::format("{:.1f}", figures.batch),
                 ms(figures.first_token.p50), ms(figures.first_token.p99), ms(figures.between_tokens.p50),
                 ms(figures.between_tokens.p99), fmt::format("{:.1f} %", figures.hit_rate * 100),
                 fmt::format("{:.2f}", figures.loads_per_s)});
}

std::string verdict(const PlanFlags& f, const Answer& a) {
  if (f.replicas > 0) {
    return !a.homes.keeps_up ? fmt::format("{} servers do not keep up: their queues grow", a.replicas)
                             : fmt::format("{} servers:", a.replicas);
  }
  if (a.replicas == 0)
    return fmt::format("no number of such servers gives the first token within {} s for 99 of 100 requests", f.slo_ttft_s);
  return fmt::format("{} {} the first token within {} s for 99 of 100 requests:", a.replicas,
                     a.replicas == 1 ? "server gives" : "servers give", f.slo_ttft_s);
}

std::string all_text(const Server& s, const PlanFlags& f, const Answer& a) {
  const auto& t = f.traffic;
  const int columns = terminal_columns();
  std::string lines = fmt::format("{}, on a machine like this one: {}, level {}, {} threads\n", s.model.name,
                                  machine_facts().cpu_model, s.model.cpu_level, s.model.threads);
  lines += fmt::format("{} requests a second, prompts of {} tokens ({} of them shared), answers of {}", t.rate, t.prompt_tokens,
                       t.shared_tokens, t.max_tokens);
  if (t.adapters > 0) lines += fmt::format("; {} adapters ({}) of rank {}", t.adapters, f.skew, fmt::join(f.ranks, ", "));
  const auto rate = [](const StepCosts::Point& point) { return fmt::format("{:.0f}", point.rows / point.seconds); };
  lines += fmt::format("\nmeasured: {} tokens/s alone, {} by {}; prompts at {} tokens/s", rate(s.costs.decode.front()),
                       rate(s.costs.decode.back()), s.costs.decode.back().rows, rate(s.costs.prefill.back()));
  if (t.adapters > 0)
    lines += fmt::format("; an adapter is packed in {} ms and takes {}", ms(s.costs.adapter_load_s), size_text(s.adapter_bytes));
  lines += fmt::format("\nmemory of each server: weights {}, KV cache {} ({} tokens{})", size_text(s.model.weight_bytes),
                       size_text(s.model.kv_bytes), s.model.kv_tokens,
                       a.homes.keeps_up ? fmt::format(", {:.0f} in use", a.homes.kv_tokens) : "");
  if (s.model.draft_bytes > 0)
    lines += fmt::format(", draft model {}, which guesses nothing in these figures", size_text(s.model.draft_bytes));
  if (t.adapters > 0) {
    lines += fmt::format(", room for {} adapters{}", s.limits.adapters,
                         s.limits.adapters >= t.adapters ? ", which is all of them" : "");
  }
  lines += fmt::format("\none server gives at most {:.2f} requests/s, {:.0f} tokens/s\n{}\n", a.most_requests_per_s,
                       a.most_requests_per_s * t.max_tokens, verdict(f, a));
  TextTable table("routed", 10);
  for (const auto& [heading, width] : {std::pair{"tokens/s", 10},
                                       {"together", 10},
                                       {"first p50 ms", 14},
                                       {"p99", 10},
                                       {"between p50 ms", 16},
                                       {"p99", 10},
                                       {"hits", 10},
                                       {"loads/s", 9}})
    table.add_column(heading, width);
  add_row(table, t.adapters > 0 ? "by adapter" : "evenly", a.homes);
  add_row(table, "at random", a.anywhere);
  return wrap_hanging(lines, columns) + (table.rows().empty() ? "" : table.text(columns));
}

Status run(PlanFlags flags) {
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  CHORAL_TRY(auto options, timed_model(flags));
  Progress progress(flags.engine.quiet);
  CHORAL_TRY(const auto timer, load_timed_model(std::move(options), progress));
  Server server;
  CHORAL_RETURN_IF_ERROR(measure(*timer, flags, progress, server));
  const Answer found = answer(server, flags, progress);
  progress.finish();
  if (flags.engine.verbose) print_notes(server.model.notes);
  return print_out(flags.json ? all_json(server, flags, found) : all_text(server, flags, found));
}

}  // namespace

void add_plan(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("plan", "how many servers like this machine a traffic needs");
  const auto flags = std::make_shared<PlanFlags>();
  add_timed_model_flags(*sub, *flags);
  const auto option = [sub](const char* name, auto& value, const std::string& what, const char* type) {
    return sub->add_option(name, value, what)->type_name(type);
  };
  auto& traffic = flags->traffic;
  option("--rate", traffic.rate, "requests a second, at random times", "X")->required();
  option("--prompt-tokens", traffic.prompt_tokens, "of a prompt (64)", "N");
  option("--shared-tokens", traffic.shared_tokens, "of them, the same in all prompts (0)", "N");
  option("--max-tokens", traffic.max_tokens, "of an answer (64)", "N");
  option("--adapters", traffic.adapters, "LoRA adapters that requests name (0)", "N");
  option("--ranks", flags->ranks, "their ranks, in turn (16)", "LIST")->delimiter(',');
  option("--skew", flags->skew, "who is asked for: in-turn, uniform, or zipf: the k-th with weight 1/k (zipf)", "ORDER");
  option("--slo-ttft", flags->slo_ttft_s, "99 of 100 requests have their first token by then (1)", "SECONDS");
  option("--replicas", flags->replicas, "so many servers, instead of as many as it takes", "N");
  option("--seed", traffic.seed, "of times and adapters (0)", "N");
  sub->add_flag("--quick", flags->quick, "fewer steps are measured");
  sub->add_flag("--json", flags->json, "one JSON object");
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
