// `choral eval`: perplexity of a text, and how far a model's answers are from a reference's.
#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/printable.h"
#include "command.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "io/mapped_file.h"
#include "output_file.h"
#include "progress.h"
#include "tools/evaluation.h"
#include "voice.h"

namespace choral::apps {
namespace {

using Json = nlohmann::ordered_json;
using tools::Estimate;
using tools::EvaluationReport;

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

struct EvalFlags {
  EngineFlags engine;  // --ctx-size is the window
  std::string text;
  std::vector<std::string> adapters;  // --adapter; none: the one that --lora brings alone
  std::string against, against_adapter = "base";
  std::string against_logits, save_logits;
  int min_context = 1;
  int64_t tokens = 0;
  bool json = false;
};

// What is measured against is as its files are; whoever measures a KV cache's type or a quantisation wants the exact one beside
// it.
EngineOptions reference_options(EngineOptions options, const EvalFlags& flags) {
  const EngineOptions stored;
  options.model = flags.against;
  options.dtype = stored.dtype;
  options.quantization = stored.quantization;
  options.activations = stored.activations;
  options.kv_cache_dtype = stored.kv_cache_dtype;
  return options;
}

// Adapters that nobody asks for are not loaded.
tools::EvaluatedModel evaluated(EngineOptions options, Voice voice) {
  if (voice.adapters.empty()) {
    options.adapters.clear();
    options.adapter_root.clear();
  }
  return tools::EvaluatedModel{std::move(options), std::move(voice.adapters)};
}

// Where the other side has an adapter and nobody is named here, it is held against the base.
Result<Voice> measured_voice(const EvalFlags& flags, const EngineOptions& options) {
  if (flags.adapters.empty() && flags.against_adapter != kBaseName) return Voice{};
  std::string unused;
  CHORAL_TRY(auto voice, chosen_voice(flags.adapters, flags.engine.adapters, options, unused));
  const bool brings_any = !options.adapters.empty() || !options.adapter_root.empty();
  if (brings_any && flags.adapters.empty() && voice.adapters.empty())
    return invalid_argument("adapters are brought, but none is measured: name one with --adapter");
  return voice;
}

Status check_flags(const EvalFlags& flags) {
  if (flags.engine.options.model.empty()) return invalid_argument("no model was given: choral eval MODEL --text FILE");
  if (flags.text.empty()) return invalid_argument("no text was given: choral eval MODEL --text FILE");
  if (!flags.against.empty() && !flags.against_logits.empty())
    return invalid_argument("give either --against or --against-logits");
  if (flags.against.empty() && flags.against_adapter != kBaseName)
    return invalid_argument("--against-adapter needs --against MODEL");
  return {};
}

std::string estimate_text(const Estimate& e, int digits) {
  return fmt::format("{:.{}f} ± {:.{}f}", e.value, digits, e.error, digits);
}

// Of a share that was counted.
Estimate share_of(int64_t count, size_t of) {
  const auto n = static_cast<double>(of);
  const double share = static_cast<double>(count) / n;
  return {share, std::sqrt(share * (1 - share) / n)};
}

std::string report_text(const EvaluationReport& report, const std::string& measured, const EvalFlags& flags) {
  const auto line = [](std::string_view what, const std::string& value) { return fmt::format("{:<18}{}\n", what, value); };
  std::string out = terminal_line(fmt::format("{}{}, {}: {} tokens in {} windows of {}", report.model,
                                              measured == kBaseName ? "" : " with " + measured, flags.text, report.text_tokens,
                                              report.windows, report.window_tokens)) +
                    "\n";
  out += line("scored", fmt::format("{} tokens, {:.0f} tokens/s", report.logprobs.size(),
                                    static_cast<double>(report.computed_tokens) / report.compute_s));
  out += line("mean NLL", estimate_text(tools::mean_nll(report.logprobs), 4));
  out += line("perplexity", estimate_text(tools::perplexity(report.logprobs), 4));
  if (!report.reference) return out;
  const auto& found = *report.reference;
  const auto ratio = tools::perplexity_ratio(report.logprobs, found.logprobs);
  const auto same = share_of(found.same_top, found.divergences.size());
  out += terminal_line(fmt::format("against {}{}", found.model,
                                   flags.against_adapter == kBaseName ? "" : " with " + flags.against_adapter)) +
         "\n";
  out += line("its perplexity", estimate_text(tools::perplexity(found.logprobs), 4));
  out += line("difference", fmt::format("{:+.3f} % ± {:.3f}", 100 * (ratio.value - 1), 100 * ratio.error));
  out += line("KL divergence",
              fmt::format("{}; median {:.6f}, 99 % {:.6f}, max {:.6f}", estimate_text(tools::mean_of(found.divergences), 6),
                          tools::quantile(found.divergences, 0.5), tools::quantile(found.divergences, 0.99),
                          tools::quantile(found.divergences, 1)));
  out += line("same top token", fmt::format("{:.2f} % ± {:.2f}", 100 * same.value, 100 * same.error));
  return out;
}

std::string report_json(const EvaluationReport& report, const std::string& measured, const EvalFlags& flags) {
  const auto nll = tools::mean_nll(report.logprobs), ppl = tools::perplexity(report.logprobs);
  Json all{{"model", report.model},
           {"adapter", measured},
           {"text", flags.text},
           {"window_tokens", report.window_tokens},
           {"min_context", flags.min_context},
           {"windows", report.windows},
           {"text_tokens", report.text_tokens},
           {"scored_tokens", report.logprobs.size()},
           {"tokens_per_s", static_cast<double>(report.computed_tokens) / report.compute_s},
           {"nll", nll.value},
           {"nll_error", nll.error},
           {"perplexity", ppl.value},
           {"perplexity_error", ppl.error}};
  if (report.reference) {
    const auto& found = *report.reference;
    const auto its = tools::perplexity(found.logprobs), ratio = tools::perplexity_ratio(report.logprobs, found.logprobs);
    const auto kl = tools::mean_of(found.divergences), same = share_of(found.same_top, found.divergences.size());
    all["reference"] = {{"model", found.model},
                        {"adapter", flags.against_logits.empty() ? Json(flags.against_adapter) : Json()},
                        {"perplexity", its.value},
                        {"perplexity_error", its.error},
                        {"perplexity_ratio", ratio.value},
                        {"perplexity_ratio_error", ratio.error},
                        {"kl", kl.value},
                        {"kl_error", kl.error},
                        {"kl_median", tools::quantile(found.divergences, 0.5)},
                        {"kl_99", tools::quantile(found.divergences, 0.99)},
                        {"kl_max", tools::quantile(found.divergences, 1)},
                        {"same_top", same.value},
                        {"same_top_error", same.error}};
  }
  all["notes"] = report.notes;
  return all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::unique_ptr<OutputFile>> open_logits_file(const std::string& path, bool quiet) {
  CHORAL_TRY(auto file, OutputFile::create(path, OutputFile::Pipes::kRefused));
  if (file->is_stdout()) return invalid_argument("--save-logits: name a file; standard output has the report");
  if (!quiet && !file->remark().empty()) say("choral: {}\n", file->remark());
  return file;
}

Status run(const EvalFlags& flags) {
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  CHORAL_TRY(const auto interrupts, Interrupts::make());  // before any thread
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  tools::EvaluationOptions wanted{.text_name = flags.text,
                                  .window_tokens = options.max_model_len,
                                  .min_context = flags.min_context,
                                  .max_tokens = flags.tokens,
                                  .saved_reference = flags.against_logits};
  CHORAL_TRY(wanted.text, io::read_whole_file(flags.text, kMaxTextBytes).while_("--text"));
  CHORAL_TRY(const auto measured, measured_voice(flags, options));
  wanted.measured = evaluated(options, measured);
  if (!flags.against.empty()) {
    CHORAL_TRY(auto reference, parse_voice(flags.against_adapter).while_("--against-adapter"));
    wanted.reference = evaluated(reference_options(options, flags), std::move(reference));
  }
  std::unique_ptr<OutputFile> saved;
  std::optional<Interrupts::Tidying> tidying;
  if (!flags.save_logits.empty()) {
    CHORAL_TRY(saved, open_logits_file(flags.save_logits, flags.engine.quiet));
    wanted.save = [&saved](std::string_view piece) { return saved->write_piece(piece); };
    tidying.emplace(*interrupts, [&file = *saved] { file.remove_partial(); });
  }
  Progress progress(flags.engine.quiet);
  progress.update(fmt::format("opening {}", options.model), Progress::kUnknown);
  const auto on_load = [&progress](const LoadProgress& p) {
    if (p.phase == "pack") progress.update("packing weights", p.fraction);
    if (p.phase == "load") progress.update(fmt::format("reading {}", p.detail), Progress::kUnknown);
    if (p.phase == "adapters") progress.update(fmt::format("loading adapter {}", p.detail), p.fraction);
  };
  wanted.measured.engine.on_progress = on_load;
  if (wanted.reference) wanted.reference->engine.on_progress = on_load;
  wanted.on_progress = [&progress](const tools::EvaluationProgress& p) {
    progress.update(fmt::format("scoring, perplexity {:.3f} so far", std::exp(p.nll)),
                    static_cast<double>(p.scored) / static_cast<double>(p.total));
  };
  CHORAL_TRY(const auto report, tools::evaluate(wanted));
  progress.finish();
  if (saved != nullptr) {
    CHORAL_RETURN_IF_ERROR(saved->commit());
    if (!flags.engine.quiet)
      say("choral: {} has the logits of {} places\n", terminal_line(flags.save_logits), report.logprobs.size());
  }
  if (flags.engine.verbose) print_notes(report.notes);
  return print_out(flags.json ? report_json(report, measured.name, flags) : report_text(report, measured.name, flags));
}

}  // namespace

void add_eval(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("eval", "perplexity of a text, and the distance from a reference model");
  const auto flags = std::make_shared<EvalFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("--text", flags->text, "a file with the text, UTF-8")->type_name("FILE");
  sub->add_option("--tokens", flags->tokens, "only the text's first N tokens; 0 = all (0)")->type_name("N");
  sub->add_option("--min-context", flags->min_context,
                  "tokens with fewer before them in their window do not count (1); 257 with windows of 512 is llama.cpp's rule")
      ->type_name("N");
  sub->add_option("--against", flags->against,
                  "also load this model, as its files are, and compare: perplexity, KL divergence, most likely token")
      ->type_name("MODEL");
  sub->add_option("--against-logits", flags->against_logits, "compare with what --save-logits wrote")->type_name("FILE");
  sub->add_option("--save-logits", flags->save_logits,
                  "keep the logits for later runs: 2 bytes a token of the vocabulary, each place")
      ->type_name("FILE");
  sub->add_flag("--json", flags->json, "one JSON object");
  sub->add_option("--adapter", flags->adapters,
                  "who is measured: NAME, NAME:FACTOR or a mix, A+B:0.5 (the one of --lora, else base)")
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->group("Adapters");
  sub->add_option("--against-adapter", flags->against_adapter, "who answers for --against, likewise (base)")
      ->type_name("NAME")
      ->group("Adapters");
  add_engine_flags(*sub, flags->engine);
  sub->get_option("--ctx-size")->description("tokens of a window (512, or the model's context if that is shorter)");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
