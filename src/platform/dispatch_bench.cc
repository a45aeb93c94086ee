// What a call costs before any arithmetic: through the op table, and through a plug-in's function.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "platform/cpu_context_test.h"
#include "platform/platform_choice.h"

namespace choral::platform {
namespace {

// No rows: what is left is the call. Directly, then through the table.
void direct_take_rows(benchmark::State& state) {
  testing::CpuContext cpu(1);
  const MatrixView<float> nothing(nullptr, 0, 0);
  auto* run = (*cpu).ops.take_rows.run;
  for (auto _ : state) {
    run(*cpu, nothing, {}, nothing);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(direct_take_rows);

void table_take_rows(benchmark::State& state) {
  testing::CpuContext cpu(1);
  const MatrixView<float> nothing(nullptr, 0, 0);
  for (auto _ : state) {
    (*cpu).ops.take_rows(*cpu, nothing, {}, nothing);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(table_take_rows);

// A plug-in named by CHORAL_BENCH_DEVICE (found through CHORAL_PLUGIN_PATH): the host's work for a call, its struct, the
// plug-in's queue. The device works at the same time; a queue that is full makes the host wait for it.
void plugin_add_of_one_row(benchmark::State& state) {
  const char* device = std::getenv("CHORAL_BENCH_DEVICE");
  if (device == nullptr) return state.SkipWithError("CHORAL_BENCH_DEVICE names no plug-in");
  const auto choice = choose_platform(device);
  if (!choice.ok()) return state.SkipWithError(choice.status().message().c_str());
  ThreadPool pool(1);
  const auto session = choice->platform->open(pool, {});
  if (!session.ok()) return state.SkipWithError(session.status().message().c_str());
  const Context ctx(**session, pool, cpu_level());
  const auto x = ctx.make_matrix(1, 16), y = ctx.make_matrix(1, 16);
  for (auto _ : state) ctx.ops.add(ctx, x, y);
  if (const auto status = (*session)->end_step({}); !status.ok()) state.SkipWithError(status.message().c_str());
}
BENCHMARK(plugin_add_of_one_row);

}  // namespace
}  // namespace choral::platform
