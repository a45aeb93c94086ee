#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "text/stream_detokenizer.h"
#include "text/tokenizer.h"

namespace choral::text {
namespace {

// CHORAL_BENCH_TOKENIZER names a tokenizer.json, CHORAL_BENCH_TEXT a text.
std::string read_file(const char* variable) {
  const char* path = std::getenv(variable);
  if (!path) return {};
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

std::shared_ptr<const Tokenizer> tokenizer(benchmark::State& state) {
  auto loaded = Tokenizer::from_json(read_file("CHORAL_BENCH_TOKENIZER"));
  if (!loaded.ok()) state.SkipWithError("set CHORAL_BENCH_TOKENIZER to a tokenizer.json");
  return loaded.ok() ? *loaded : nullptr;
}

std::string text() {
  std::string t = read_file("CHORAL_BENCH_TEXT");
  constexpr const char* kSentence =
      "The quick brown fox, having jumped over 13 lazy dogs, didn't stop: it ran on through the neighbouring fields.\n";
  while (t.size() < 1 << 20) t += t.empty() ? kSentence : t;
  return t;
}

void run(benchmark::State& state, const std::string& input) {
  const auto t = tokenizer(state);
  if (!t) return;
  for (auto _ : state) benchmark::DoNotOptimize(t->encode(input));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * input.size()));
}

void encode_text(benchmark::State& state) { run(state, text()); }
void encode_one_letter(benchmark::State& state) { run(state, std::string(1 << 20, 'a')); }
void encode_spaces(benchmark::State& state) { run(state, std::string(1 << 20, ' ')); }
BENCHMARK(encode_text);
BENCHMARK(encode_one_letter);
BENCHMARK(encode_spaces);

void load(benchmark::State& state) {
  const std::string json = read_file("CHORAL_BENCH_TOKENIZER");
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::from_json(json));
}
BENCHMARK(load);

void stream(benchmark::State& state) {
  const auto t = tokenizer(state);
  if (!t) return;
  const auto ids = *t->encode(text());
  StreamDetokenizer detokenizer(t);
  std::string out;
  for (auto _ : state) {
    for (const int32_t id : ids) {
      out.clear();
      detokenizer.push(id, out);
    }
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}
BENCHMARK(stream);

}  // namespace
}  // namespace choral::text
