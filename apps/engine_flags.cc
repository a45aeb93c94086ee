#include "engine_flags.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <map>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpu_level.h"
#include "base/cpu_list.h"
#include "base/cpu_share.h"
#include "base/cpu_topology.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "base/thread_affinity.h"
#include "base/thread_plan.h"
#include "engine/ranks/following_rank.h"
#include "engine/ranks/rank_link.h"
#include "io/mapped_file.h"
#include "progress.h"
#include "quant/quant_config.h"
#include "requests/speculative_config.h"
#include "sampling_flags.h"
#include "terminal_text.h"

namespace choral::apps {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;
constexpr std::string_view kUnits = "KMGT";

// ", 6 adapters (18.3 MiB), more in examples/adapters"; nothing without any.
std::string adapters_text(const LLM& llm, const std::string& root) {
  const auto adapters = llm.adapters();
  int64_t bytes = 0;
  for (const auto& adapter : adapters) bytes += adapter.size_bytes;
  std::string text;
  if (!adapters.empty()) {
    text += fmt::format(", {} adapter{}", adapters.size(), adapters.size() == 1 ? "" : "s");
    if (bytes > 0) text += fmt::format(" ({})", size_text(bytes));
  }
  if (!root.empty()) text += fmt::format(", {} in {}", adapters.empty() ? "adapters" : "more", root);
  return text;
}

// ", up to 12 tokens guessed ahead"; nothing where none are.
std::string guesses_text(const ModelInfo& info) {
  if (info.most_guessed == 0) return "";
  return fmt::format(", up to {} token{} guessed ahead", info.most_guessed, info.most_guessed == 1 ? "" : "s");
}

// What a load's time went into: each phase lasts until another begins.
class LoadTimes {
 public:
  explicit LoadTimes(double begin) : since_(begin) {}

  void enter(std::string_view phase) {
    if (phase == "memory" || phase == "packed") return;  // told within its phase
    const std::string_view stage = phase == "load" || phase == "pack" ? "weights" : phase == "adapters" ? "adapters" : "files";
    if (stage == stages_.back().first && phase != "ready") return;
    const double now = now_s();
    stages_.back().second += now - std::exchange(since_, now);
    stages_.emplace_back(stage, 0);
  }
  std::string text() const {
    std::string text;
    for (const auto& [stage, seconds] : std::span(stages_).first(stages_.size() - 1))
      text += fmt::format("{}{} {:.1f} s", text.empty() ? "" : ", ", stage, seconds);
    return text;
  }

 private:
  double since_;
  std::vector<std::pair<std::string_view, double>> stages_{{"files", 0}};
};

// By the cap that kernels, packing and the fingerprint know already; nothing has asked for the level yet.
Status pin_numerics(const std::string& name) {
  CHORAL_TRY(const CpuLevel level, parse_cpu_level(name));
  if (!machine_has(level)) {
    return unsupported(
        "this machine has no {}, the highest level that it has is {}; pin all machines to a level that each of them has", name,
        cpu_level_name(machine_cpu_level()));
  }
  setenv("CHORAL_CPU_LEVEL", name.c_str(), /*overwrite=*/1);
  CHORAL_CHECK(cpu_level() == level, "the CPU level was asked for before it was pinned");
  return {};
}

// For this thread and all that are started later: how many compute threads there are by default, and where they stand, follows
// from the CPUs that the process may use.
Status stay_on_cpus(const std::string& list) {
  const auto cpus = parse_cpu_list(list);
  if (!cpus) return invalid_argument("\"{}\" is no list of CPUs: give numbers and ranges as in 0-7,16", list);
  const auto allowed = allowed_cpus();
  const auto missing =
      std::find_if(cpus->begin(), cpus->end(), [&](int cpu) { return !std::binary_search(allowed.begin(), allowed.end(), cpu); });
  if (missing != cpus->end())
    return invalid_argument("CPU {} is none that this process may use; those are {}", *missing, cpu_list_text(allowed));
  if (!stay_on(*cpus)) return system_error(errno, "cannot stay on these CPUs");
  return {};
}

// A node by its number, or the one that this process began on: the CPUs of it that the process may use. Memory is of the node
// whose thread writes it first.
Status stay_on_node(const std::string& name) {
  const auto topology = cpu_topology(SystemFiles(), allowed_cpus());
  std::map<int, std::vector<int>> nodes;
  for (const auto& place : topology.cpus) nodes[place.node].push_back(place.cpu);
  unsigned node = 0;
  if (name == "isolate") {
    if (getcpu(nullptr, &node) != 0) return system_error(errno, "which node this is");
  } else if (const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), node);
             error != std::errc() || end != name.data() + name.size()) {
    return invalid_argument("\"{}\" is none of auto, off, distribute, isolate, and no node's number", name);
  }
  const auto found = nodes.find(static_cast<int>(node));
  if (found == nodes.end()) {
    std::vector<int> names;
    for (const auto& [number, cpus] : nodes) names.push_back(number);
    return invalid_argument("node {} has no CPU that this process may use; nodes that have: {}", node, cpu_list_text(names));
  }
  if (!stay_on(found->second)) return system_error(errno, fmt::format("cannot stay on the CPUs of node {}", node));
  return {};
}

Status read_numa(const std::string& name, EngineOptions& options) {
  if (name == "numactl") return {};  // llama.cpp's name for what is done anyway: CPUs and memory are as numactl set them
  if (!parse_numa(name).ok()) return stay_on_node(name);
  options.numa = name;
  return {};
}

}  // namespace

void add_model_flag(CLI::App& app, EngineFlags& flags) {
  app.add_option("-m,--model,MODEL", flags.options.model, "a folder, a GGUF file, or org/name in the local Hugging Face cache")
      ->type_name("");
}

void add_engine_flags(CLI::App& app, EngineFlags& flags) {
  EngineOptions& o = flags.options;
  const auto option = [&app](const char* names, auto& value, const std::string& what, const char* type) {
    return app.add_option(names, value, what)->type_name(type)->group("Engine");
  };
  option("--dtype", o.dtype, "weights: auto (as stored), float32, bfloat16, float16", "TYPE");
  option("--quantization", o.quantization,
         fmt::format("of a float checkpoint's linear layers while it is loaded: auto (none), {}",
                     fmt::join(quant::in_flight_names(), ", ")),
         "NAME");
  option("--activations", o.activations,
         "what weights meet: auto (as the checkpoint says, else x in full), 16bit (of x, on a device), int8 (of integer weights)",
         "NAME");
  option("--packed-cache", o.packed_cache,
         "where packed weights are kept for the next start: auto (1 GiB and more, beside the hub's cache), off or a folder",
         "FOLDER");
  app.add_flag_callback(
         "--no-packed-cache", [&o] { o.packed_cache = "off"; }, "keep no packed weights, and read none")
      ->group("Engine");
  option("--kv-cache-dtype", o.kv_cache_dtype, "KV cache: auto (float16), float32 (exact), bfloat16, float16, int8", "TYPE");
  option("--kv-cache-memory", flags.kv_cache_memory, "KV cache, e.g. 512M or 2G (by free memory)", "SIZE");
  option("-c,--max-model-len,--ctx-size", o.max_model_len, "longest prompt and answer together (the model's)", "N");
  option("--max-num-seqs", o.max_num_seqs, "answers computed at the same time (64)", "N");
  option("--max-num-batched-tokens", o.max_num_batched_tokens, "tokens computed in one step (1024)", "N");
  option("--tensor-parallel-size", o.tensor_parallel_size,
         "ranks that divide the model, each with its part of the weights, the KV cache and the threads, and a device of its own "
         "where "
         "one computes; answers are the same bits",
         "N");
  option("--rank-timeout", o.rank_timeout_s,
         "under mpirun: a process that says nothing for so long within a step is lost, and the model with it (60)", "SECONDS");
  option("-t,--threads", o.threads, "compute threads (one per physical core that the container grants time for)", "N");
  option("--cpu-list", flags.cpu_list, "run on these CPUs alone, e.g. 0-7,16 (all that the process may use)", "LIST");
  option(
      "--numa", flags.numa,
      "with several NUMA nodes or L3 caches: auto (each thread stays at a cache where each core has one), off, distribute (fewer "
      "threads too), isolate (run on this node alone), or a node's number",
      "MODE");
  app.add_flag("--enable-prefix-caching,!--no-prefix-caching,!--no-enable-prefix-caching", o.enable_prefix_caching,
               "keep prompts' beginnings for later prompts (on)")
      ->group("Engine");
  app.add_flag("--enable-chunked-prefill,!--no-chunked-prefill,!--no-enable-chunked-prefill", o.enable_chunked_prefill,
               "split long prompts over steps (on)")
      ->group("Engine");
  option(
      "--speculative", o.speculative,
      "guess tokens, where that is faster; answers stay the same bits: ngram, from what the text says elsewhere; traffic, from "
      "ended answers too; draft=MODEL, by a draft model too; or off (ngram)",
      "LIST");
  option("--traffic-memory", flags.traffic_memory, "for ended answers that are guessed from (64M)", "SIZE");
  option("--num-speculative-tokens,--draft-max", o.most_guessed, "tokens guessed for an answer in a step, at most (12)", "N");
  option("--speculative-config", flags.speculative_config,
         R"(the same in vLLM's words: {"method": "ngram", "num_speculative_tokens": 5})", "JSON");
  option("--speculative-model", flags.speculative_model, "the same in vLLM's old words: [ngram] or a draft model", "NAME");
  option("--draft-model,--model-draft", o.draft_model,
         "a small model with the same tokenizer that guesses tokens, as --speculative draft=MODEL", "MODEL");
  option("--draft-quantization", o.draft_quantization, "of the draft model, as --quantization", "NAME");
  option("--scheduling-policy", o.scheduling_policy, "fcfs or priority", "NAME");
  option("--numerics", flags.numerics, "compute as this CPU level does: base, avx2, avxvnni, avx512, vnni or amx (the machine's)",
         "LEVEL");
  option("--device", o.device, "auto (the best plug-in, else the CPU), cpu, a plug-in's name, or NAME:1 for its second device",
         "NAME");
  app.add_flag("--require-device", o.require_device, "no CPU in its place when no plug-in works")->group("Engine");
  app.add_flag("--strict", o.strict, "fallbacks of devices and operators, and adapters of another base, are errors")
      ->group("Engine");
  option("--custom-ops", o.custom_ops, "layers' operations in the device's form: all, none, +NAME, -NAME", "LIST");
  option("--fuse", o.fuse, "fused operators: all, none, +NAME, -NAME", "LIST");
  option("--worker-cls,--worker-class", o.worker_cls, "auto or a name that the device brings", "NAME");
  option("--tokenizer", o.tokenizer, "another folder for the tokenizer", "PATH");
  option("--chat-template", flags.chat_template_file, "a Jinja file instead of the model's", "FILE");
  add_seed_flag(app, "--engine-seed", flags.seed, "for requests without --seed (another each time)")->group("Engine");
  app.add_flag("-q,--quiet", flags.quiet, "no progress, no summaries")->group("Engine");
  app.add_flag("-v,--verbose", flags.verbose, "say every choice that was made while loading")->group("Engine");
  add_adapter_flags(app, flags.adapters, o);
}

namespace {

Status put_speculation(const EngineFlags& flags, EngineOptions& options) {
  if (!flags.traffic_memory.empty()) {
    CHORAL_TRY(options.traffic_memory_bytes, parse_size(flags.traffic_memory).while_("--traffic-memory"));
  }
  if (options.draft_model.empty()) options.draft_model = requests::draft_model_of(flags.speculative_model);
  if (flags.speculative_config.empty()) return {};
  if (options.speculative == "off")
    return invalid_argument("--speculative off and --speculative-config were given, which turns it on; leave one of them out");
  CHORAL_TRY(const auto config, requests::read_speculative_config(flags.speculative_config).while_("--speculative-config"));
  options.most_guessed = config.most_guessed.value_or(options.most_guessed);
  if (!config.draft_model.empty() && !options.draft_model.empty() && config.draft_model != options.draft_model)
    return invalid_argument("--speculative-config names the model {}, and --draft-model {} is given too; leave one of them out",
                            config.draft_model, options.draft_model);
  if (options.draft_model.empty()) options.draft_model = config.draft_model;
  for (const auto& note : config.notes) {
    if (!flags.quiet) say_wrapped("choral: --speculative-config: " + note);
  }
  return {};
}

}  // namespace

Result<EngineOptions> engine_options(const EngineFlags& flags) {
  if (!flags.cpu_list.empty()) CHORAL_RETURN_IF_ERROR(stay_on_cpus(flags.cpu_list).while_("--cpu-list"));
  if (!flags.numerics.empty()) CHORAL_RETURN_IF_ERROR(pin_numerics(flags.numerics).while_("--numerics"));
  EngineOptions options = flags.options;
  if (!flags.numa.empty()) CHORAL_RETURN_IF_ERROR(read_numa(flags.numa, options).while_("--numa"));
  options.seed = flags.seed ? *flags.seed : fresh_seed();
  if (!flags.kv_cache_memory.empty()) {
    CHORAL_TRY(options.kv_cache_bytes, parse_size(flags.kv_cache_memory).while_("--kv-cache-memory"));
    if (options.kv_cache_bytes == 0) return invalid_argument("--kv-cache-memory: 0 bytes hold no token");
  }
  if (!flags.chat_template_file.empty()) {
    CHORAL_TRY(options.chat_template, io::read_whole_file(flags.chat_template_file, kMaxTemplateBytes).while_("--chat-template"));
  }
  CHORAL_RETURN_IF_ERROR(put_speculation(flags, options));
  CHORAL_RETURN_IF_ERROR(put_adapters(flags.adapters, options));
  CHORAL_TRY(options.rank_link, engine::open_mpi_link());
  return options;
}

Status follow(const EngineFlags& flags) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);  // the first says when it ends
  CHORAL_TRY(auto options, engine_options(flags));
  return engine::follow_first_rank(std::move(options));
}

Result<std::unique_ptr<LLM>> load_llm(const EngineFlags& flags) {
  CHORAL_TRY(auto options, engine_options(flags));
  return load_llm(flags, std::move(options));
}

Result<std::unique_ptr<LLM>> load_llm(const EngineFlags& flags, EngineOptions options) {
  const std::string root = options.adapter_root;
  const uint64_t seed = options.seed;
  if (options.model.empty()) return invalid_argument("no model was given: name a folder, a GGUF file or org/name");
  const double begin = now_s();
  Progress progress(flags.quiet);
  progress.update(fmt::format("opening {}", options.model), Progress::kUnknown);
  LoadTimes times(begin);
  options.on_progress = [&](const LoadProgress& p) {
    times.enter(p.phase);
    if (p.phase == "memory" && flags.tells_memory) progress.say_line(fmt::format("memory: {}", p.detail));
    if (p.phase == "pack") progress.update("packing weights", p.fraction);
    if (p.phase == "packed") progress.say_line(fmt::format("packed weights: {}", p.detail));
    if (p.phase == "load") progress.update(fmt::format("reading {}", p.detail), Progress::kUnknown);
    if (p.phase == "adapters") progress.update(fmt::format("loading adapter {}", p.detail), p.fraction);
  };
  CHORAL_TRY(auto llm, LLM::load(std::move(options)));
  const ModelInfo& info = llm->info();
  progress.finish(
      fmt::format("{} ready in {:.1f} s ({}): {}, {:.0f}M parameters in {}, context {}, KV cache {} tokens ({}), {} thread{} at "
                  "CPU level {}{}{}",
                  info.name, now_s() - begin, times.text(), info.architecture, static_cast<double>(info.parameters) * 1e-6,
                  size_text(info.weight_bytes), info.max_model_len, info.kv_cache_tokens, info.kv_cache_dtype, info.threads,
                  info.threads == 1 ? "" : "s", info.cpu_level, guesses_text(info), adapters_text(*llm, root)));
  if (flags.verbose) {
    print_notes(info.notes);
    print_layers(info.layers);
    say("choral:   the dice's seed is {0}: --engine-seed {0} throws them alike again\n", seed);
  }
  return llm;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const auto& note : notes) say_wrapped("choral:   " + note);
}

void print_layers(const std::vector<LayerForms>& layers) {
  size_t name = 0, scheme = 0, kernel = 0;
  for (const auto& row : layers) {
    name = std::max(name, row.layers.size());
    scheme = std::max(scheme, row.scheme.size());
    kernel = std::max(kernel, row.kernel.size());
  }
  for (const auto& row : layers) {
    say("choral:   {:>3} × {:<{}}  {:<{}}  {:<{}}  {}\n", row.count, terminal_text(row.layers), name, row.scheme, scheme,
        row.kernel, kernel, terminal_text(row.why));
  }
}

Result<int64_t> parse_size(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, text.data() + text.size() - end);
  const auto wrong = [&] {
    return invalid_argument("'{}' is not a size; write a number with K, M, G or T, e.g. 512M or 1.5G", text);
  };
  if (error != std::errc() || !(value >= 0)) return wrong();
  if (unit.ends_with("iB")) {
    unit.remove_suffix(2);
  } else if (unit.ends_with('B')) {
    unit.remove_suffix(1);
  }
  if (unit.size() > 1) return wrong();
  if (!unit.empty()) {
    const size_t power = kUnits.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    if (power == kUnits.npos) return wrong();
    value = std::ldexp(value, 10 * (static_cast<int>(power) + 1));
  }
  constexpr double kMost = 1e18;
  if (value > kMost) return wrong();
  return static_cast<int64_t>(value);
}

}  // namespace choral::apps
