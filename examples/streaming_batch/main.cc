// Several prompts at the same time, each read by a thread of its own as its text comes; one is cancelled on the way.
// The engine computes all of them in one batch: no answer waits for another.
#include <choral/llm.h>

#include <iostream>
#include <mutex>
#include <thread>

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " MODEL\n";
    return 2;
  }
  choral::EngineOptions options;
  options.model = argv[1];
  auto llm = choral::LLM::load(options);
  if (!llm.ok()) {
    std::cerr << llm.status().to_string() << '\n';
    return choral::exit_code(llm.status().code());
  }

  const std::vector<std::string> prompts{"Once upon a time", "The sea is", "Count: one, two,"};
  constexpr size_t kCancelled = 2;
  constexpr size_t kCancelAfter = 4;  // tokens
  std::mutex output_mutex;
  std::vector<std::thread> readers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    choral::Request request;
    request.id = "prompt " + std::to_string(i + 1);
    request.prompt = prompts[i];
    request.sampling.temperature = 0;
    request.sampling.max_tokens = i == kCancelled ? 0 : 24;  // 0 = as far as the context goes
    request.sampling.ignore_eos = true;
    auto submitted = (*llm)->submit(request);
    if (!submitted.ok()) {
      std::cerr << request.id << ": " << submitted.status().to_string() << '\n';
      continue;
    }
    readers.emplace_back([&, i, stream = std::move(*submitted)] {
      choral::StreamEvent event;
      size_t tokens = 0;
      while (stream->next(event)) {
        tokens += event.token_ids.size();
        {
          const std::lock_guard lock(output_mutex);
          std::cout << '[' << stream->id() << "] " << event.text << '\n';
        }
        if (i == kCancelled && tokens >= kCancelAfter) stream->cancel();  // the others go on
      }
      const choral::RequestOutput output = stream->wait();
      const std::lock_guard lock(output_mutex);
      if (!output.status.ok()) {
        std::cout << output.id << ": " << output.status.to_string() << '\n';
        return;
      }
      const choral::Completion& completion = output.completions.front();
      const bool was_cancelled = completion.finish_reason == choral::FinishReason::kCancelled;
      std::cout << output.id << ": " << completion.token_ids.size() << " tokens, " << (was_cancelled ? "cancelled" : "complete")
                << '\n';
    });
  }
  for (auto& reader : readers) reader.join();
  return 0;
}
