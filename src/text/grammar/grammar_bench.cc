// What one mask costs. CHORAL_BENCH_TOKENIZER names a tokenizer.json; CHORAL_XGRAMMAR the library's folder.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace choral::text {
namespace {

using Kind = StructuredOutput::Kind;

std::shared_ptr<const Tokenizer> tokenizer(benchmark::State& state) {
  const char* path = std::getenv("CHORAL_BENCH_TOKENIZER");
  std::stringstream text;
  if (path) text << std::ifstream(path, std::ios::binary).rdbuf();
  auto loaded = Tokenizer::from_json(text.str());
  if (!loaded.ok()) state.SkipWithError("set CHORAL_BENCH_TOKENIZER to a tokenizer.json");
  return loaded.ok() ? *loaded : nullptr;
}

// A mask behind `written`.
void mask(benchmark::State& state, const StructuredOutput& wanted, std::string_view written) {
  const auto t = tokenizer(state);
  if (!t) return;
  const auto compiler = *make_grammar_compiler(*t, {t->eos_id().value_or(0)});
  const auto grammar = compiler->compile(wanted);
  if (!grammar.ok()) return state.SkipWithError(grammar.status().message().c_str());
  auto matcher = *(*grammar)->matcher();
  const auto ids = t->encode(written, {.add_special_tokens = false});
  if (!ids.ok()) return state.SkipWithError(ids.status().message().c_str());
  for (const int32_t id : *ids) {
    if (!matcher->accept(id)) return state.SkipWithError("the text does not fit");
  }
  std::vector<uint32_t> words((static_cast<size_t>(t->vocab_size()) + 31) / 32);
  for (auto _ : state) {
    matcher->fill_mask(words);
    benchmark::DoNotOptimize(words.data());
  }
  state.counters["tokens"] = t->vocab_size();
}

const StructuredOutput kJson{Kind::kJsonObject, "", {}};
const StructuredOutput kSchema{
    Kind::kJsonSchema,
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["name","age","tags"]})",
    {}};

void json_begin(benchmark::State& state) { mask(state, kJson, ""); }
void json_value(benchmark::State& state) { mask(state, kJson, "{\"a\":"); }
void json_string(benchmark::State& state) { mask(state, kJson, "{\"a\": \"hello"); }
void json_escape(benchmark::State& state) { mask(state, kJson, "{\"a\": \"x\\"); }
void json_number(benchmark::State& state) { mask(state, kJson, "{\"a\": 12"); }
void choice(benchmark::State& state) { mask(state, {Kind::kChoice, "", {"positive", "negative", "neutral"}}, ""); }
void schema_begin(benchmark::State& state) { mask(state, kSchema, ""); }
void schema_string(benchmark::State& state) { mask(state, kSchema, "{\"name\": \"hello"); }
BENCHMARK(json_begin);
BENCHMARK(json_value);
BENCHMARK(json_string);
BENCHMARK(json_escape);
BENCHMARK(json_number);
BENCHMARK(choice);
BENCHMARK(schema_begin);
BENCHMARK(schema_string);

void make_compiler(benchmark::State& state) {
  const auto t = tokenizer(state);
  if (!t) return;
  for (auto _ : state) benchmark::DoNotOptimize(make_grammar_compiler(*t, {0}));
}
BENCHMARK(make_compiler)->Unit(benchmark::kMillisecond);

// A new schema each time: nothing comes from the cache.
void compile_schema(benchmark::State& state) {
  const auto t = tokenizer(state);
  if (!t) return;
  const auto compiler = *make_grammar_compiler(*t, {0});
  int n = 0;
  for (auto _ : state) {
    StructuredOutput wanted = kSchema;
    wanted.text.insert(1, "\"title\":\"" + std::to_string(n++) + "\",");
    const auto grammar = compiler->compile(wanted);
    if (!grammar.ok()) return state.SkipWithError(grammar.status().message().c_str());
  }
}
BENCHMARK(compile_schema)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace choral::text
