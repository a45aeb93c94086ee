// Whether products keep many threads busy: by the arithmetic that divides them, for the models that people serve and more threads
// than any machine of tests has. What is not balanced stands in a list, with its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/checked_math.h"
#include "kernels/gemm/gemm_float_kernels.h"
#include "kernels/gemm/packed_matrix.h"
#include "kernels/gemm/work_division.h"

namespace choral::kernels {
namespace {

constexpr double kEven = 1.15;
constexpr int kThreads[] = {1, 2, 3, 8, 16, 32, 64, 96, 128};
constexpr int64_t kRows[] = {1, 8, 32, 512};

// The widths of a model's matrices.
struct Model {
  const char* name;
  std::vector<int64_t> outputs;
};
const Model kModels[] = {
    {"SmolLM2-135M", {960, 576, 3072, 49152}},     {"Llama-3.2-1B", {3072, 2048, 16384, 128256}},
    {"Llama-3.1-8B", {6144, 4096, 28672, 128256}}, {"Llama-3.3-70B", {10240, 8192, 57344, 128256}},
    {"Qwen3-30B-A3B", {5120, 2048, 151936}},       {"DeepSeek-V2-Lite", {3072, 576, 2048, 102400}},
};

// How a form of weights divides a product, as its plan() does.
struct Form {
  const char* name;
  int64_t most_rows;
  int64_t (*task_panels)(int64_t panels, int64_t rows, int threads);
};
const Form kForms[] = {
    {"floats", 240,
     [](int64_t panels, int64_t rows, int threads) {
       const FloatKernels& kernels = float_kernels(CpuLevel::kAvx2);
       const bool direct = rows <= kernels.max_direct_rows;
       return panels_per_task(panels, threads, direct ? kernels.panels_for(static_cast<int>(rows)) : kernels.tile_panels,
                              direct ? 64 : 8);
     }},
    {"quantised", 96, [](int64_t panels, int64_t, int threads) { return quant_panels_per_task(panels, threads); }},
};

double share_of_product(const Form& form, int64_t outputs, int64_t rows, int threads) {
  const int64_t panels = ceil_div(outputs, kPanelRows);
  const auto task = [&](int64_t of_rows, int of_threads) { return form.task_panels(panels, of_rows, of_threads); };
  const auto [parts, at_once] = divide_rows(rows, form.most_rows, panels, threads, task);
  const int64_t last = parts % at_once == 0 ? at_once : parts % at_once;
  double worst = 0;
  for (const int64_t together : {at_once, last}) {
    const int64_t panels_of_task = task(ceil_div(rows, parts), static_cast<int>(ceil_div(threads, at_once)));
    worst = std::max(worst, busiest_share(together, panels, panels_of_task, threads));
  }
  return worst;
}

// Panels of 16 outputs are not divided, since a vector of the CPU is one: with fewer than some seven a thread their number may
// not go up evenly, which rows make good where there are 96 of them or more.
bool is_excused(int64_t outputs, int64_t rows, int threads) {
  return rows < 96 && ceil_div(outputs, kPanelRows) < int64_t{7} * threads;
}

TEST(Balance, ProductsKeepThreadsBusy) {
  for (const Form& form : kForms) {
    for (const Model& model : kModels) {
      for (const int64_t outputs : model.outputs) {
        for (const int64_t rows : kRows) {
          for (const int threads : kThreads) {
            const double share = share_of_product(form, outputs, rows, threads);
            const auto what =
                fmt::format("{}, {}: {} outputs, {} rows, {} threads", form.name, model.name, outputs, rows, threads);
            EXPECT_GE(share, 1.0 - 1e-9) << what;
            if (!is_excused(outputs, rows, threads)) {
              EXPECT_LE(share, kEven) << what;
              continue;
            }
            // No better cut of whole panels would help.
            const int64_t panels = ceil_div(outputs, kPanelRows);
            const double best = static_cast<double>(ceil_div(panels, threads) * threads) / static_cast<double>(panels);
            EXPECT_LE(share, best * kEven) << what;
          }
        }
      }
    }
  }
}

// Two threads, for which all was tuned, divide no rows that a matrix takes at once.
TEST(Balance, FewThreadsDivideByOutputsAlone) {
  for (const Form& form : kForms) {
    for (const Model& model : kModels) {
      for (const int64_t outputs : model.outputs) {
        const int64_t panels = ceil_div(outputs, kPanelRows);
        const auto task = [&](int64_t of_rows, int of_threads) { return form.task_panels(panels, of_rows, of_threads); };
        for (const int threads : {1, 2}) {
          for (const int64_t rows : kRows) {
            const auto [parts, at_once] = divide_rows(rows, form.most_rows, panels, threads, task);
            EXPECT_EQ(parts, ceil_div(rows, form.most_rows));
            EXPECT_EQ(at_once, 1);
          }
        }
      }
    }
  }
}

TEST(PanelsPerTask, SharesAreBalanced) {
  for (const int64_t panels : {1, 2, 3, 9, 36, 96, 128, 512, 3072}) {
    for (const int threads : {1, 2, 3, 8}) {
      for (const int64_t group : {1, 2, 4}) {
        const int64_t task = panels_per_task(panels, threads, group, 64);
        ASSERT_GE(task, 1);
        ASSERT_LE(task, 64);
        const int64_t tasks = (panels + task - 1) / task;
        const int64_t longest = (tasks + threads - 1) / threads * task;
        ASSERT_LE(longest, (panels + threads - 1) / threads * 5 / 4 + 1) << panels << " " << threads << " " << group;
      }
    }
  }
}

}  // namespace
}  // namespace choral::kernels
