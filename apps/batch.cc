#include "batch.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "output_file.h"
#include "progress.h"

namespace choral::apps {

Request prompt_request(const std::string& prompt, bool chat, const std::string& system, const SamplingParams& sampling) {
  Request request;
  request.sampling = sampling;
  if (!chat && system.empty()) {
    request.prompt = prompt;
    return request;
  }
  if (!system.empty()) request.messages.push_back({"system", system});
  request.messages.push_back({"user", prompt});
  return request;
}

std::string shown_answer(const RequestOutput& output) {
  if (!output.status.ok()) return fmt::format("(error: {})", output.status.message());
  const Completion& c = output.completions.at(0);
  if (c.finish_reason != FinishReason::kLength) return c.text;
  return fmt::format("{}… (cut after {} token{})", c.text, c.token_ids.size(), c.token_ids.size() == 1 ? "" : "s");
}

std::string BatchRun::summary() const {
  std::string text = fmt::format("{} answer{} in one batch: {} tokens in {:.2f} s", outputs.size(),
                                 outputs.size() == 1 ? "" : "s", tokens, seconds);
  if (seconds > 0) text += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds);
  return text;
}

namespace {

// Reads all streams as their pieces come, and says how far they are or prints what the reader makes of them.
class Watch {
 public:
  Watch(const std::vector<std::unique_ptr<ResponseStream>>& streams, const std::vector<std::string>& names, AnswerReader* reader,
        BatchRun& run)
      : streams_(streams), names_(names), reader_(reader), run_(run), tokens_(streams.size(), 0), ended_(streams.size(), false) {}

  void run(Progress& progress, const std::string& what) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      if (streams_[i] != nullptr) {
        streams_[i]->on_ready([this] { wake(); });
      } else {
        end(i, progress);
      }
    }
    for (;;) {
      for (size_t i = 0; i < streams_.size(); ++i) read(i, progress);
      const auto ended = std::count(ended_.begin(), ended_.end(), true);
      const double fraction = static_cast<double>(ended) / static_cast<double>(streams_.size());
      if (ended == std::ssize(streams_)) break;
      progress.update(what + counts(), names_.empty() ? fraction : Progress::kUnknown);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return std::exchange(has_news_, false); });
    }
  }

 private:
  void wake() {
    const std::lock_guard lock(mutex_);
    has_news_ = true;
    changed_.notify_all();
  }
  void read(size_t i, Progress& progress) {
    while (!ended_[i]) {
      const StreamState state = streams_[i]->try_next(event_);
      if (state == StreamState::kPending) return;
      if (state == StreamState::kEnd) {
        streams_[i]->on_ready({});
        run_.outputs[i] = streams_[i]->wait();
        end(i, progress);
      } else {
        tokens_[i] += event_.token_ids.size();
        if (reader_ != nullptr && !event_.text.empty()) print(reader_->piece(i, event_.text), progress);
      }
    }
  }
  void end(size_t i, Progress& progress) {
    ended_[i] = true;
    if (reader_ != nullptr) print(reader_->ended(i, run_.outputs[i]), progress);
  }
  void print(const std::string& text, Progress& progress) {
    if (text.empty()) return;
    if (isatty(STDOUT_FILENO) == 1) progress.finish();  // both would write over each other
    if (run_.written.ok()) run_.written = print_out(text);
  }
  // ": base 12, pirate 30 tokens"
  std::string counts() const {
    std::string text;
    for (size_t i = 0; i < names_.size(); ++i) text += fmt::format("{} {} {}", i == 0 ? ":" : ",", names_[i], tokens_[i]);
    return text.empty() ? "" : text + " tokens";
  }

  const std::vector<std::unique_ptr<ResponseStream>>& streams_;
  const std::vector<std::string>& names_;
  AnswerReader* const reader_;
  BatchRun& run_;
  std::vector<size_t> tokens_;
  std::vector<bool> ended_;
  StreamEvent event_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_news_ = false;
};

}  // namespace

BatchRun answer_together(LLM& llm, Interrupts& interrupts, std::vector<Request> requests, const std::string& what,
                         const std::vector<std::string>& names, bool quiet, AnswerReader* reader, bool only_ctrl_c) {
  BatchRun run;
  run.outputs.resize(requests.size());
  const double begin = now_s();
  std::vector<std::unique_ptr<ResponseStream>> streams;
  for (size_t i = 0; i < requests.size(); ++i) {
    auto stream = llm.submit(std::move(requests[i]));
    if (!stream.ok()) run.outputs[i].status = stream.status();
    streams.push_back(stream.ok() ? std::move(*stream) : nullptr);
  }
  {
    const auto cancel = [&streams] {
      for (const auto& stream : streams) {
        if (stream != nullptr) stream->cancel();
      }
    };
    const Interrupts::Scope scope(interrupts, {.call = cancel, .only_ctrl_c = only_ctrl_c, .again = only_ctrl_c});
    Progress progress(quiet);
    Watch(streams, names, reader, run).run(progress, what);
  }
  run.seconds = now_s() - begin;
  for (const auto& output : run.outputs) {
    for (const auto& c : output.completions) {
      run.tokens += c.token_ids.size();
      run.cancelled |= c.finish_reason == FinishReason::kCancelled;
    }
  }
  return run;
}

}  // namespace choral::apps
