#include "generate_jsonl.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <optional>

#include "answer_lines.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "interrupts.h"
#include "line_reader.h"
#include "output_file.h"
#include "progress.h"

namespace choral::apps {
namespace {

constexpr std::string_view kNoRoomForLine = "the line cannot be read";
constexpr std::string_view kNoRoomForRequest = "the request cannot be read";
// What stands in memory behind an answer that is still open; the engine's queue limits the requests among it.
constexpr int64_t kMaxErrors = 4096;
constexpr size_t kMaxEchoBytes = size_t{64} << 20;

struct Entry {
  int64_t line = 0;
  LineEcho echo;
  int completions = 0;
  Status error;                                      // of a line that never became a request
  std::unique_ptr<ResponseStream> stream = nullptr;  // else

  size_t echo_bytes() const { return echo.id_json.size() + echo.lora_json.size() + error.message().size(); }
};

struct FileCloser {
  void operator()(std::FILE* file) const {
    if (file != stdin) std::fclose(file);
  }
};
using InputFile = std::unique_ptr<std::FILE, FileCloser>;

Result<InputFile> open_input(const std::string& path) {
  InputFile file(path == "-" ? stdin : std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return system_error(errno, fmt::format("--input: cannot open {}", path));
  return file;
}

class JsonlRun {
 public:
  JsonlRun(LLM& llm, const EngineOptions& options, OutputFile& output, Progress& progress)
      : llm_(llm), safely_open_(options.max_waiting - options.max_num_seqs), output_(output), progress_(progress) {}

  // From the signal's thread.
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    if (waited_for_ != nullptr) waited_for_->cancel();
  }
  bool stopped() const { return stopped_; }

  Status add(Entry entry, Request request) {
    for (;;) {
      auto stream = or_out_of_memory(kNoRoomForRequest, [&] { return llm_.submit(request); });
      if (stream.ok()) {
        entry.stream = std::move(*stream);
        break;
      }
      if (stream.status().code() != Code::kResourceExhausted || !queue_may_be_full(request)) {
        entry.error = stream.status();
        break;
      }
      // A full queue is no error of the line. Wait for an answer, then go on.
      CHORAL_RETURN_IF_ERROR(write_oldest());
      if (stopped_) return {};
    }
    entry.completions = request.sampling.n;
    return add(std::move(entry));
  }
  Status add(Entry entry) {
    open_ += entry.stream != nullptr ? 1 : 0;
    open_completions_ += entry.stream != nullptr ? entry.completions : 0;
    echo_bytes_ += entry.echo_bytes();
    entries_.push_back(std::move(entry));
    while (!stopped_ && (errors() > kMaxErrors || echo_bytes_ > kMaxEchoBytes)) CHORAL_RETURN_IF_ERROR(write_oldest());
    return {};
  }

  Status finish() {
    while (!entries_.empty() && !stopped_) CHORAL_RETURN_IF_ERROR(write_oldest());
    return {};
  }

  Status result() const {
    if (failed_ == 0) return {};
    return Status(first_error_)
        .while_(fmt::format("{} of {} requests failed, the first in line {}", failed_, written_, first_line_));
  }
  std::string summary(double seconds) const {
    return fmt::format("{} requests, {} prompt tokens ({} cached), {} generated in {:.1f} s: {:.1f} tokens/s{}", written_,
                       prompt_tokens_, cached_tokens_, tokens_, seconds, static_cast<double>(tokens_) / seconds,
                       failed_ > 0 ? fmt::format("; {} failed", failed_) : "");
  }

 private:
  // Else resource_exhausted means memory, which waiting does not bring. Nobody else asks this engine.
  bool queue_may_be_full(const Request& request) const {
    return open_ > 0 && open_completions_ + request.sampling.n > safely_open_;
  }

  int64_t errors() const { return std::ssize(entries_) - open_; }

  Status write_oldest() {
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    echo_bytes_ -= entry.echo_bytes();
    if (entry.stream == nullptr) {
      count(entry, entry.error);
      return output_.write_line(error_line(entry.echo, entry.line, entry.error));
    }
    progress_.update(fmt::format("{} answers written, {} open", written_, open_), Progress::kUnknown);
    set_waited_for(entry.stream.get());
    RequestOutput output;
    if (!stopped_) output = entry.stream->wait();
    set_waited_for(nullptr);
    --open_;
    open_completions_ -= entry.completions;
    if (stopped_) return {};
    prompt_tokens_ += output.prompt_token_ids.size();
    cached_tokens_ += output.cached_tokens;
    for (const auto& c : output.completions) tokens_ += c.token_ids.size();
    count(entry, output.status);
    CHORAL_RETURN_IF_ERROR(or_out_of_memory("the answer cannot be written", [&] {
      return write_answer(entry.echo, output, [this](std::string_view piece) { return output_.write_piece(piece); });
    }));
    return output_.write_line("");
  }

  void count(const Entry& entry, const Status& status) {
    ++written_;
    if (!status.ok() && failed_++ == 0) {
      first_error_ = status;
      first_line_ = entry.line;
    }
  }

  void set_waited_for(ResponseStream* stream) {
    const std::lock_guard lock(mutex_);
    waited_for_ = stream;
  }

  LLM& llm_;
  const int64_t safely_open_;  // completions for which the queue has room; its count may be a step old
  OutputFile& output_;
  Progress& progress_;
  std::deque<Entry> entries_;
  int64_t open_ = 0, open_completions_ = 0, written_ = 0, failed_ = 0, first_line_ = 0;
  size_t echo_bytes_ = 0, prompt_tokens_ = 0, tokens_ = 0;
  int64_t cached_tokens_ = 0;
  Status first_error_;
  std::mutex mutex_;
  ResponseStream* waited_for_ = nullptr;
  std::atomic<bool> stopped_ = false;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

}  // namespace

Status generate_jsonl(const EngineFlags& engine, const SamplingFlags& sampling, const std::string& input,
                      const std::string& output) {
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  CHORAL_TRY(const auto file, open_input(input));
  CHORAL_TRY(const auto out, OutputFile::create(output).while_("--output"));
  const Interrupts::Tidying tidying(*interrupts, [&out = *out] { out.remove_partial(); });
  if (out->writes_into(fileno(file.get())))
    return invalid_argument("--output {}: it is also --input and cannot be replaced; name another file", output);
  if (!engine.quiet && !out->remark().empty()) say("choral: --output: {}\n", out->remark());
  CHORAL_TRY(const auto llm, load_llm(engine));
  SamplingParams defaults;
  sampling.put_over(defaults);
  const auto warn = [&](const std::string& text) {
    if (!engine.quiet) say("choral: {}: {}\n", terminal_line(input), terminal_line(text));
  };
  const double begin = now_s();
  // Answers on the terminal and a bar would write over each other.
  Progress progress(engine.quiet || (out->is_stdout() && isatty(STDOUT_FILENO) == 1));
  JsonlRun work(*llm, engine.options, *out, progress);
  const Interrupts::Scope scope(*interrupts, {.call = [&] { work.stop(); }});
  serve::RequestLineReader reader(defaults, warn);
  LineReader lines(file.get());
  struct stat facts {};
  const bool waits = ::fstat(fileno(file.get()), &facts) != 0 || !S_ISREG(facts.st_mode);
  std::string line;
  while (!work.stopped()) {
    bool more = false;
    Status error = or_out_of_memory(kNoRoomForLine, [&] {
      std::optional<Interrupts::Scope> idle;  // while nothing comes there is nothing to stop: a signal ends the process
      if (waits) idle.emplace(*interrupts, Interrupts::Handler{});
      more = lines.next(line);
      return Status();
    });
    serve::RequestLine parsed;
    if (!error.ok()) {
      line = {};
      lines.skip_rest();
    } else if (!more) {
      break;
    } else if (lines.too_long()) {
      error = too_large("the line has more than {}", size_text(LineReader::kMaxBytes));
    } else if (is_blank(line)) {
      continue;
    } else {
      error = or_out_of_memory(kNoRoomForLine, [&] { return reader.read(line, parsed); });
    }
    Entry entry{.line = lines.number(), .echo = std::move(parsed.echo), .error = std::move(error)};
    if (entry.error.ok()) {
      CHORAL_RETURN_IF_ERROR(work.add(std::move(entry), std::move(parsed.request)));
    } else {
      CHORAL_RETURN_IF_ERROR(work.add(std::move(entry)));
    }
  }
  if (std::ferror(file.get()) != 0) return invalid_argument("--input {}: cannot be read", input);
  if (input == "-" && lines.number() == 0) warn("standard input is closed or empty");
  CHORAL_RETURN_IF_ERROR(work.finish());
  if (work.stopped())
    return cancelled("stopped by Ctrl-C{}", out->is_direct() ? "" : fmt::format("; {} was not written", output));
  CHORAL_RETURN_IF_ERROR(out->commit());
  progress.finish(work.summary(now_s() - begin));
  return work.result();
}

}  // namespace choral::apps
