// The same requests as throughput.py makes, through the C++ API: generate_many MODEL THREADS PROMPTS TOKENS NAME=PATH…
// Prints the seconds that they took, and the sum of all token ids.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "choral/llm.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int threads = std::atoi(argv[2]), prompts = std::atoi(argv[3]), tokens = std::atoi(argv[4]);
  choral::EngineOptions options{.model = argv[1], .threads = threads};
  for (int i = 5; i < argc; ++i) {
    const std::string given = argv[i];
    const auto at = given.find('=');
    options.adapters.push_back({.name = given.substr(0, at), .path = given.substr(at + 1)});
  }
  const auto adapters = options.adapters;
  auto llm = choral::LLM::load(std::move(options));
  if (!llm.ok()) {
    std::fprintf(stderr, "%s\n", llm.status().to_string().c_str());
    return 1;
  }
  std::vector<choral::Request> requests;
  for (int i = 0; i < prompts; ++i) {
    choral::Request request{.prompt = "Question " + std::to_string(i) + ": what is it?"};
    request.sampling = {.max_tokens = tokens, .temperature = 0, .ignore_eos = true};
    if (!adapters.empty()) request.adapters = {{adapters[static_cast<size_t>(i) % adapters.size()].name}};
    requests.push_back(std::move(request));
  }
  const auto begin = std::chrono::steady_clock::now();
  long sum = 0;
  for (const auto& output : (*llm)->generate(std::move(requests))) {
    if (!output.status.ok()) {
      std::fprintf(stderr, "%s\n", output.status.to_string().c_str());
      return 1;
    }
    for (const int id : output.completions.front().token_ids) sum += id;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.4f %ld\n", took.count(), sum);
}
