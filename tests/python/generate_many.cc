// The same requests as throughput.py makes, through the C++ API: generate_many MODEL THREADS PROMPTS TOKENS NAME=PATH…
// Each line of its input, a number, begins a round. Prints the seconds that it took, those of the processor, and the sum of all
// token ids.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "choral/llm.h"

namespace {

std::vector<choral::Request> requests_of(const std::string& round, int prompts, int tokens,
                                         const std::vector<std::string>& names) {
  std::vector<choral::Request> requests;
  for (int i = 0; i < prompts; ++i) {
    for (const auto& name : names) {
      choral::Request request{.prompt = "Question " + round + "." + std::to_string(i) + ": what is it?"};
      request.sampling = {.max_tokens = tokens, .temperature = 0, .ignore_eos = true};
      if (!name.empty()) request.adapters = {{name}};
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int threads = std::atoi(argv[2]), prompts = std::atoi(argv[3]), tokens = std::atoi(argv[4]);
  choral::EngineOptions options{.model = argv[1], .threads = threads};
  std::vector<std::string> names;
  for (int i = 5; i < argc; ++i) {
    const std::string given = argv[i];
    const auto at = given.find('=');
    names.push_back(given.substr(0, at));
    options.adapters.push_back({.name = names.back(), .path = given.substr(at + 1)});
  }
  if (names.empty()) names.emplace_back();
  auto llm = choral::LLM::load(std::move(options));
  if (!llm.ok()) {
    std::fprintf(stderr, "%s\n", llm.status().to_string().c_str());
    return 1;
  }
  std::puts("ready");
  std::fflush(stdout);
  for (std::string round; std::getline(std::cin, round);) {
    const auto begin = std::chrono::steady_clock::now();
    const auto cpu = std::clock();
    long sum = 0;
    for (const auto& output : (*llm)->generate(requests_of(round, prompts, tokens, names))) {
      if (!output.status.ok()) {
        std::fprintf(stderr, "%s\n", output.status.to_string().c_str());
        return 1;
      }
      for (const int id : output.completions.front().token_ids) sum += id;
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.4f %.4f %ld\n", took.count(), static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC, sum);
    std::fflush(stdout);
  }
}
