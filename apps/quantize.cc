// `choral quantize`: writes a quantised checkpoint from a float one.
#include "tools/quantize.h"

#include <CLI/CLI.hpp>

#include "base/printable.h"
#include "base/size_text.h"
#include "command.h"
#include "interrupts.h"
#include "output_file.h"
#include "progress.h"

namespace choral::apps {
namespace {

struct QuantizeFlags {
  tools::QuantizeOptions options;
  bool quiet = false;
};

Status check_flags(const tools::QuantizeOptions& options) {
  constexpr std::string_view kUsage = "choral quantize MODEL OUT --scheme NAME";
  if (options.model.empty()) return invalid_argument("no model was given: {}", kUsage);
  if (options.out.empty()) return invalid_argument("no folder for the result was given: {}", kUsage);
  if (options.scheme.empty()) return invalid_argument("no scheme was given: {}", kUsage);
  if (options.threads < 0) return invalid_argument("--threads {}: choose 1 or more", options.threads);
  return {};
}

std::string report_text(const tools::QuantizeReport& report, const tools::QuantizeOptions& options) {
  const std::string kept = report.float_layers == 0 ? "" : fmt::format(", {} stay float", report.float_layers);
  return terminal_line(fmt::format("{}: {} linear layers as {}{}; tensors {} -> {} in {} file{}", options.out,
                                   report.quantised_layers, options.scheme, kept, size_text(report.bytes_before),
                                   size_text(report.bytes_after), report.weight_files, report.weight_files == 1 ? "" : "s")) +
         "\n";
}

Status run(const QuantizeFlags& flags) {
  CHORAL_RETURN_IF_ERROR(check_flags(flags.options));
  CHORAL_TRY(const auto interrupts, Interrupts::make());  // before any thread
  Progress progress(flags.quiet);
  auto options = flags.options;
  options.on_progress = [&progress](const std::string& tensor, double fraction) {
    progress.update(fmt::format("writing {}", terminal_line(tensor)), fraction);
  };
  CHORAL_TRY(const auto quantizer, tools::CheckpointQuantizer::open(options));
  const Interrupts::Tidying tidying(*interrupts, [&quantizer] { quantizer->remove_partial(); });
  CHORAL_TRY(const auto report, quantizer->write());
  progress.finish();
  return print_out(report_text(report, options));
}

}  // namespace

void add_quantize(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("quantize", "write a quantised checkpoint from a float one");
  const auto flags = std::make_shared<QuantizeFlags>();
  auto& o = flags->options;
  sub->add_option("-m,--model,MODEL", o.model, "a folder with a float checkpoint, or org/name in the local Hugging Face cache")
      ->type_name("");
  sub->add_option("-o,--output,OUT", o.out, "the folder to make; one that is not empty is refused")->type_name("");
  sub->add_option("--scheme", o.scheme,
                  "w8a8_dynamic, w8a16, w4a16, w4a8_dynamic or fp8: as --quantization of the other commands")
      ->type_name("NAME");
  sub->add_option("--format", o.format, "how it is written: compressed-tensors (for vLLM, transformers) or modelslim")
      ->capture_default_str()
      ->type_name("NAME");
  sub->add_option("--ignore", o.ignore,
                  "linear layers that stay float: a regular expression of whole names, \".*\\.down_proj\"; may be given again")
      ->type_name("PATTERN");
  sub->add_flag("--force", o.force, "replace the model that OUT holds");
  sub->add_option("-t,--threads", o.threads, "compute threads (one per physical core)")->type_name("N");
  sub->add_flag("-q,--quiet", flags->quiet, "no progress bar");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
