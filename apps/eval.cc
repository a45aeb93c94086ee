// `choral eval`: perplexity of a text, and how far a model's answers are from a reference's.
#include <CLI/CLI.hpp>
#include <cmath>

#include "base/log.h"
#include "base/printable.h"
#include "command.h"
#include "engine_flags.h"
#include "eval_report.h"
#include "interrupts.h"
#include "io/mapped_file.h"
#include "output_file.h"
#include "progress.h"
#include "tools/evaluation.h"
#include "voice.h"

namespace choral::apps {
namespace {

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
  std::string html;
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
  CHORAL_TRY(const auto page, open_beside_report("--html", flags.html, flags.engine.quiet));
  std::unique_ptr<OutputFile> saved;
  std::optional<Interrupts::Tidying> tidying;
  if (!flags.save_logits.empty()) {
    CHORAL_TRY(saved, open_beside_report("--save-logits", flags.save_logits, flags.engine.quiet));
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
  const EvalSubject subject{.adapter = measured.name,
                            .text = flags.text,
                            .min_context = flags.min_context,
                            .against_adapter = flags.against_logits.empty() ? flags.against_adapter : ""};
  CHORAL_RETURN_IF_ERROR(print_out(flags.json ? eval_report_json(report, subject) : eval_report_text(report, subject)));
  return write_html_file(page.get(), eval_page(report, subject));
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
  sub->add_option("--html", flags->html, "also a page of it, one file: with the figures along the text")->type_name("FILE");
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
