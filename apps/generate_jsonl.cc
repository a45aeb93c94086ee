#include "generate_jsonl.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <optional>
#include <tuple>

#include "base/clock.h"
#include "base/log.h"
#include "base/out_of_memory.h"
#include "base/printable.h"
#include "base/system_error.h"
#include "interrupts.h"
#include "line_reader.h"
#include "output_file.h"
#include "progress.h"
#include "requests/answer_lines.h"
#include "serve/usual_sampling.h"
#include "voice.h"

namespace choral::apps {
namespace {

constexpr std::string_view kNoRoomForLine = "the line cannot be read";
constexpr std::string_view kNoRoomForRequest = "the request cannot be read";
// What stands in memory behind an answer that is still open; the engine's queue limits the requests among it.
constexpr int64_t kMaxErrors = 4096;
constexpr size_t kMaxEchoBytes = size_t{64} << 20;

struct Entry {
  int64_t line = 0;
  requests::LineEcho echo;
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
      return output_.write_line(requests::error_line(entry.echo, entry.line, entry.error));
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
      return requests::write_answer(entry.echo, output, [this](std::string_view piece) { return output_.write_piece(piece); });
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

// The answers that a stopped run left, read beside the lines that they answer.
class KeptAnswers {
 public:
  static Result<std::unique_ptr<KeptAnswers>> open(const std::string& path) {
    CHORAL_TRY(auto file, open_input(path));
    return std::unique_ptr<KeptAnswers>(new KeptAnswers(path, std::move(file)));
  }
  // Whether the line of `echo` is answered there. Another line's answer in its place is an error.
  Result<bool> has(const requests::LineEcho& echo, int64_t line) {
    if (!lines_.next(answer_)) return false;
    if (!lines_.too_long() && !answer_.starts_with(fmt::format("{{\"id\":{},", echo.id_json))) {
      return invalid_argument("--resume: line {} has the id {}, its answer in {} another: that is of another --input", line,
                              echo.id_json, path_);
    }
    return true;
  }
  int64_t count() const { return lines_.number(); }

 private:
  KeptAnswers(std::string path, InputFile file) : path_(std::move(path)), file_(std::move(file)), lines_(file_.get()) {}

  const std::string path_;
  const InputFile file_;
  LineReader lines_;
  std::string answer_;
};

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; }

bool names_its_voice(const requests::LineEcho& echo) { return !echo.lora_json.empty() && echo.lora_json != "null"; }

// Whether one of the lines says who answers it. Afterwards the file stands where it stood.
Result<bool> any_names_its_voice(std::FILE* file, const std::string& path) {
  const off_t begin = ::ftello(file);
  requests::RequestLineReader reader({}, [](const std::string&) {});
  LineReader lines(file);
  std::string line;
  bool found = false;
  while (!found && lines.next(line)) {
    if (lines.too_long() || is_blank(line)) continue;
    requests::RequestLine parsed;
    std::ignore = reader.read(line, parsed);  // is said when its turn comes
    found = names_its_voice(parsed.echo);
  }
  if (begin < 0 || ::fseeko(file, begin, SEEK_SET) != 0) return system_error(errno, fmt::format("--input: cannot read {}", path));
  return found;
}

}  // namespace

Status generate_jsonl(const EngineFlags& engine, const SamplingFlags& sampling, const JsonlFiles& files) {
  const std::string& input = files.input;
  CHORAL_TRY(const auto interrupts, Interrupts::make());
  CHORAL_RETURN_IF_ERROR(sampling.check({}));
  CHORAL_TRY(auto options, engine_options(engine));
  std::string unused;
  CHORAL_TRY(auto voice, chosen_voice({}, engine.adapters, options, unused));
  CHORAL_TRY(const auto file, open_input(input));
  struct stat facts {};
  const bool waits = ::fstat(fileno(file.get()), &facts) != 0 || !S_ISREG(facts.st_mode);
  CHORAL_TRY(const auto out, OutputFile::create(files.output).while_("--output"));
  if (out->writes_into(fileno(file.get())))
    return invalid_argument("--output {}: it is also --input and cannot be replaced; name another file", files.output);
  if (!engine.quiet && !out->remark().empty()) say("choral: --output: {}\n", out->remark());
  std::unique_ptr<KeptAnswers> kept;
  if (files.resume) {
    CHORAL_TRY(const bool goes_on, out->resume());
    if (goes_on) {
      CHORAL_TRY(kept, KeptAnswers::open(out->partial()));
    } else if (!engine.quiet) {
      say("choral: --resume: nothing was left beside {}: all lines are answered\n", terminal_line(files.output));
    }
  }
  CHORAL_TRY(const auto llm, load_llm(engine, options));
  SamplingParams defaults = serve::usual_sampling(*llm);
  sampling.put_over(defaults);
  const auto warn = [&](const std::string& text) {
    if (!engine.quiet) say("choral: {}: {}\n", terminal_line(input), terminal_line(text));
  };
  if (!unused.empty()) warn(unused + " (`lora` of a line chooses)");
  // The only adapter answers a file that names none; in one that does, a line without a name means the base. What a pipe will
  // name is not known: there each line counts alone.
  if (!voice.adapters.empty() && !waits) {
    CHORAL_TRY(const bool named, or_out_of_memory(kNoRoomForLine, [&] { return any_names_its_voice(file.get(), input); }));
    if (named) warn(fmt::format("lines choose by their own `lora`; the others are the base's, not {}'s", voice.name));
    if (named) voice = {};
  }
  const double begin = now_s();
  // Answers on the terminal and a bar would write over each other.
  Progress progress(engine.quiet || (out->is_stdout() && isatty(STDOUT_FILENO) == 1));
  JsonlRun work(*llm, options, *out, progress);
  const Interrupts::Scope scope(*interrupts, {.call = [&] { work.stop(); }});
  const std::function<void(const std::string&)> meet = warn;
  requests::RequestLineReader reader(defaults, files.strict_fields ? nullptr : meet);
  LineReader lines(file.get());
  std::string line;
  while (!work.stopped()) {
    bool more = false;
    Status error = or_out_of_memory(kNoRoomForLine, [&] {
      std::optional<Interrupts::Scope> idle;  // while nothing comes there is nothing to stop: a signal ends the process
      if (waits) idle.emplace(*interrupts, Interrupts::Handler{});
      more = lines.next(line);
      return Status();
    });
    requests::RequestLine parsed;
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
    if (kept != nullptr) {
      CHORAL_TRY(const bool answered, kept->has(parsed.echo, lines.number()));
      if (answered) continue;
      if (!engine.quiet) say("choral: --resume: {} lines are answered in {}\n", kept->count(), terminal_line(out->partial()));
      kept.reset();
    }
    Entry entry{.line = lines.number(), .echo = std::move(parsed.echo), .error = std::move(error)};
    if (!entry.error.ok()) {
      CHORAL_RETURN_IF_ERROR(work.add(std::move(entry)));
      continue;
    }
    if (!names_its_voice(entry.echo)) parsed.request.adapters = voice.adapters;
    CHORAL_RETURN_IF_ERROR(work.add(std::move(entry), std::move(parsed.request)));
  }
  if (std::ferror(file.get()) != 0) return invalid_argument("--input {}: cannot be read", input);
  if (input == "-" && lines.number() == 0) warn("standard input is closed or empty");
  CHORAL_RETURN_IF_ERROR(work.finish());
  if (work.stopped()) {
    const std::string partial = out->partial();
    CHORAL_RETURN_IF_ERROR(out->keep());
    const std::string where = partial.empty() ? "" : fmt::format("; what is answered is in {}, and --resume goes on", partial);
    return Status(interrupts->stopped().code(), interrupts->stopped().message() + where);
  }
  CHORAL_RETURN_IF_ERROR(out->commit());
  progress.finish(work.summary(now_s() - begin));
  return work.result();
}

}  // namespace choral::apps
