// `choral quantize`: writes a quantised checkpoint from a float one.
#include "tools/quantize.h"

#include <CLI/CLI.hpp>

#include "base/printable.h"
#include "base/size_text.h"
#include "command.h"
#include "interrupts.h"
#include "io/mapped_file.h"
#include "output_file.h"
#include "progress.h"

namespace choral::apps {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

struct QuantizeFlags {
  tools::QuantizeOptions options;
  tools::CalibrationText calibration;
  bool quiet = false;
};

Status check_flags(const QuantizeFlags& flags) {
  const auto& [options, calibration, quiet] = flags;
  constexpr std::string_view kUsage = "choral quantize MODEL OUT --scheme NAME";
  if (options.model.empty()) return invalid_argument("no model was given: {}", kUsage);
  if (options.out.empty()) return invalid_argument("no folder for the result was given: {}", kUsage);
  if (options.scheme.empty()) return invalid_argument("no scheme was given: {}", kUsage);
  if (options.threads < 0) return invalid_argument("--threads {}: choose 1 or more", options.threads);
  if (options.out.ends_with(".gguf") && options.format != "gguf")
    return invalid_argument("{}: a GGUF file is written with --format gguf; --format {} makes a folder", options.out,
                            options.format);
  if (calibration.name.empty() && (calibration.window_tokens != 0 || calibration.max_tokens != 0))
    return invalid_argument("--ctx-size and --tokens are of --calibration FILE, which was not given");
  if (calibration.window_tokens < 0 || calibration.window_tokens == 1)
    return invalid_argument("--ctx-size {}: give 2 or more", calibration.window_tokens);
  if (calibration.max_tokens < 0) return invalid_argument("--tokens {}: give 1 or more, or 0 for all", calibration.max_tokens);
  return {};
}

std::string report_text(const tools::QuantizeReport& report, const tools::QuantizeOptions& options) {
  const std::string kept = report.float_layers == 0 ? "" : fmt::format(", {} stay float", report.float_layers);
  const std::string calibrated =
      report.calibration_tokens == 0 ? "" : fmt::format(" with scales of x from {} tokens", report.calibration_tokens);
  return terminal_line(fmt::format("{}: {} linear layers as {}{}{}; tensors {} -> {} in {} file{}", options.out,
                                   report.quantised_layers, options.scheme, calibrated, kept, size_text(report.bytes_before),
                                   size_text(report.bytes_after), report.weight_files, report.weight_files == 1 ? "" : "s")) +
         "\n";
}

Status run(const QuantizeFlags& flags) {
  CHORAL_RETURN_IF_ERROR(check_flags(flags));
  CHORAL_TRY(const auto interrupts, Interrupts::make());  // before any thread
  Progress progress(flags.quiet);
  auto options = flags.options;
  if (!flags.calibration.name.empty()) {
    options.calibration = flags.calibration;
    CHORAL_TRY(options.calibration->text, io::read_whole_file(flags.calibration.name, kMaxTextBytes).while_("--calibration"));
  }
  options.on_progress = [&progress](const LoadProgress& p) {
    if (p.phase == "load") progress.update(fmt::format("reading {}", terminal_line(p.detail)), Progress::kUnknown);
    if (p.phase == "pack") progress.update("packing weights", p.fraction);
    if (p.phase == "calibrate") progress.update(fmt::format("calibrating on {}", terminal_line(p.detail)), p.fraction);
    if (p.phase == "write") progress.update(fmt::format("writing {}", terminal_line(p.detail)), p.fraction);
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
  sub->add_option("-o,--output,OUT", o.out,
                  "the folder to make; one that is not empty is refused. Of --format gguf the file, NAME.gguf")
      ->type_name("");
  sub->add_option("--scheme", o.scheme,
                  "w8a8_dynamic, w8a16, w4a16, w4a8_dynamic or fp8: as --quantization of the other commands; w8a8 with "
                  "--calibration; of --format gguf q8_0, q4_0 or q4_1")
      ->type_name("NAME");
  sub->add_option("--calibration", flags->calibration.name,
                  "of w8a8: a text like what the model will read, UTF-8; scales of activations are found on it")
      ->type_name("FILE");
  sub->add_option("--tokens", flags->calibration.max_tokens, "only that text's first N tokens; 0 = all (0)")->type_name("N");
  sub->add_option("-c,--ctx-size", flags->calibration.window_tokens,
                  "tokens that are read at a time (512, or the model's context if that is shorter)")
      ->type_name("N");
  sub->add_option("--format", o.format,
                  "how it is written: compressed-tensors (for vLLM, transformers), modelslim, or gguf (one file, for llama.cpp)")
      ->capture_default_str()
      ->type_name("NAME");
  sub->add_option("--ignore", o.ignore,
                  "linear layers that stay float: a regular expression of whole names, \".*\\.down_proj\"; may be given again")
      ->type_name("PATTERN");
  sub->add_flag("--force", o.force, "replace the model that OUT holds, or the GGUF file");
  sub->add_option("-t,--threads", o.threads, "compute threads (one per physical core that the container grants time for)")
      ->type_name("N");
  sub->add_flag("-q,--quiet", flags->quiet, "no progress bar");
  sub->callback([flags, &command] { command.run = [flags] { return run(*flags); }; });
}

}  // namespace choral::apps
