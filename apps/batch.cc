#include "batch.h"

#include <fmt/core.h>

#include "base/clock.h"
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

std::string answer_text(const RequestOutput& output) {
  if (!output.status.ok()) return fmt::format("(error: {})", output.status.message());
  return output.completions.at(0).text;
}

std::string BatchRun::summary() const {
  std::string text = fmt::format("{} answers in one batch: {} tokens in {:.2f} s", outputs.size(), tokens, seconds);
  if (seconds > 0) text += fmt::format(", {:.1f} tokens/s", static_cast<double>(tokens) / seconds);
  return text;
}

BatchRun answer_together(LLM& llm, Interrupts& interrupts, std::vector<Request> requests, const std::string& what, bool quiet,
                         bool only_ctrl_c) {
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
    for (size_t i = 0; i < streams.size(); ++i) {
      progress.update(what, static_cast<double>(i) / static_cast<double>(streams.size()));
      if (streams[i] != nullptr) run.outputs[i] = streams[i]->wait();
    }
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
