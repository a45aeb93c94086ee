// `choral run-batch`: a file of requests in OpenAI's batch format answered without a server.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>

#include "answer_flags.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/system_error.h"
#include "command.h"
#include "engine_flags.h"
#include "interrupts.h"
#include "line_reader.h"
#include "output_file.h"
#include "progress.h"
#include "serve/local_batch.h"

namespace choral::apps {
namespace {

constexpr int kMostOpen = 512;  // lines

struct RunBatchFlags {
  EngineFlags engine;
  serve::ServerOptions server;
  std::string input, output;
};

// The answers in the order of their lines, as they come.
class WrittenAnswers {
 public:
  WrittenAnswers(serve::LocalBatch& batch, OutputFile& output, Progress& progress)
      : batch_(batch), output_(output), progress_(progress) {}

  // Until so many lines are open at most.
  Status write_until(size_t most_open) {
    while (batch_.open() > most_open) {
      const auto answered = batch_.next();
      ++written_;
      if (!answered.error.empty() && failed_++ == 0) first_failure_ = fmt::format("line {}: {}", answered.number, answered.error);
      CHORAL_RETURN_IF_ERROR(output_.write_line(answered.line));
      progress_.update(fmt::format("{} answers written, {} open", written_, batch_.open()), Progress::kUnknown);
    }
    return {};
  }

  Status result() const {
    if (failed_ == 0) return {};
    return invalid_argument("{} of {} requests failed, the first in {}", failed_, written_, first_failure_);
  }
  std::string summary(double seconds) const {
    return fmt::format("{} requests in {:.1f} s, {} failed", written_, seconds, failed_);
  }

 private:
  serve::LocalBatch& batch_;
  OutputFile& output_;
  Progress& progress_;
  int64_t written_ = 0, failed_ = 0;
  std::string first_failure_;
};

struct BatchFileCloser {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};

Status run_batch(RunBatchFlags flags) {
  if (flags.input.empty() || flags.output.empty())
    return invalid_argument("--input-file and --output-file are needed: choral run-batch -i IN.jsonl -o OUT.jsonl --model MODEL");
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  for (const auto& name : {flags.input, flags.output}) {
    if (name.find("://") != name.npos)
      return invalid_argument("{}: files are local ones here; fetch it first, and send what comes out", name);
  }
  const std::unique_ptr<std::FILE, BatchFileCloser> file(flags.input == "-" ? stdin : std::fopen(flags.input.c_str(), "rbe"));
  if (file == nullptr) return system_error(errno, fmt::format("--input-file: cannot open {}", flags.input));
  CHORAL_TRY(const auto out, OutputFile::create(flags.output).while_("--output-file"));
  if (out->writes_into(fileno(file.get())))
    return invalid_argument("--output-file {}: it is also --input-file and cannot be replaced; name another file", flags.output);
  flags.server.adapter_root = flags.engine.options.adapter_root;
  for (auto& name : unnamed_adapters(flags.engine.adapters)) flags.server.base_adapters.push_back({.name = std::move(name)});
  CHORAL_TRY(const auto options, engine_options(flags.engine));
  CHORAL_TRY(const auto llm, load_llm(flags.engine, options));
  CHORAL_TRY(const auto batch, serve::LocalBatch::make(*llm, options, flags.server));
  std::atomic<bool> stopped = false;
  const Interrupts::Scope scope(*interrupts, {.call = [&stopped] { stopped = true; }});
  const double begin = now_s();
  Progress progress(flags.engine.quiet);
  WrittenAnswers answers(*batch, *out, progress);
  // As many as keep the engine's places full while answers are written in order.
  const auto most_open = static_cast<size_t>(std::clamp(2 * options.max_num_seqs, 1, kMostOpen));
  LineReader lines(file.get());
  for (std::string line; !stopped && lines.next(line);) {
    if (lines.too_long()) return too_large("line {} has more than {}", lines.number(), size_text(LineReader::kMaxBytes));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    CHORAL_RETURN_IF_ERROR(answers.write_until(most_open - 1));
    batch->add(lines.number(), line);
  }
  if (std::ferror(file.get()) != 0) return invalid_argument("--input-file {}: cannot be read", flags.input);
  if (!stopped) CHORAL_RETURN_IF_ERROR(answers.write_until(0));
  if (stopped) return interrupts->stopped();
  CHORAL_RETURN_IF_ERROR(out->commit());
  progress.finish(answers.summary(now_s() - begin));
  return answers.result();
}

}  // namespace

void add_run_batch(CLI::App& app, Command& command) {
  auto* sub = app.add_subcommand("run-batch", "answer a file of requests in OpenAI's batch format, without a server");
  const auto flags = std::make_shared<RunBatchFlags>();
  add_model_flag(*sub, flags->engine);
  sub->add_option("-i,--input-file", flags->input, "requests, one JSON object a line; - is standard input")->type_name("FILE");
  sub->add_option("-o,--output-file", flags->output, "answers, one a line in the same order; - is standard output")
      ->type_name("FILE");
  add_answer_flags(*sub, flags->server);
  add_engine_flags(*sub, flags->engine);
  sub->callback([flags, &command] {
    command.run = [flags] { return run_batch(std::move(*flags)); };
    command.follow = [flags] { return follow(flags->engine); };
  });
}

}  // namespace choral::apps
