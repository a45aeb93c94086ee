// Steps that come again, through the plug-in's table as the host goes through it: what is launched as a graph, and that nothing
// but the launches differs.
#include "graphs.h"

#include <cstdio>
#include <functional>
#include <span>
#include <thread>
#include <utility>

#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kCols = 16;

class GraphsTest : public DeviceTest {};

// A device whose y grows: the steps of these tests.
class Steps {
 public:
  OpenDevice device;
  void* x = device.upload(std::vector<float>(kCols, 1));
  void* y = device.allocate(kCols * sizeof(float));

  ~Steps() { take_log(); }

  choral_status* begin(bool has_prefill = false) {
    choral_step step{};
    step.header = CHORAL_HEADER(choral_step);
    step.has_prefill = has_prefill ? 1 : 0;
    return plugin().workers[0].begin_step(device.handle, device.stream, &step);
  }
  choral_status* end() { return plugin().workers[0].end_step(device.handle, device.stream, nullptr); }
  choral_status* synchronize() { return plugin().memory->stream_synchronize(device.handle, device.stream); }
  void run(const std::function<void()>& body, bool has_prefill = false) {
    EXPECT_FINE(begin(has_prefill));
    body();
    EXPECT_FINE(end());
    EXPECT_FINE(synchronize());
  }
  // y += x, so often.
  void add(int times) { add(times, x, y); }
  void add(int times, void* from, void* to) {
    const choral_unary_args args{CHORAL_HEADER(choral_unary_args), matrix(from, 1, kCols), matrix(to, 1, kCols)};
    for (int i = 0; i < times; ++i) EXPECT_EQ(device.run("add", &args).code, 0);
  }
  void put(void* to, float value) {
    const std::vector<float> values(kCols, value);
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
    EXPECT_EQ(device.copy(CHORAL_HOST_TO_DEVICE, to, bytes, values.data(), bytes, bytes, 1).code, 0);
  }
  std::vector<float> values(const void* from) { return device.download<float>(from, kCols); }

  // As the worker tells them when it stops.
  StepGraphs::Counts counts() {
    plugin().workers[0].on_stop(device.handle);
    StepGraphs::Counts counts;
    const std::string line = take_log().back();
    long long captured = 0, launched = 0;
    EXPECT_EQ(std::sscanf(line.c_str() + line.find(": ") + 2, "%lld CUDA graphs were captured, and launched %lld times",
                          &captured, &launched),
              2)
        << line;
    counts.captured = captured;
    counts.launched = launched;
    return counts;
  }
  void expect_counts(int64_t captured, int64_t launched) {
    const auto seen = counts();
    EXPECT_EQ(seen.captured, captured);
    EXPECT_EQ(seen.launched, launched);
  }
};

TEST_F(GraphsTest, AStepThatComesTheThirdTimeIsLaunchedAsOne) {
  Steps steps;
  for (int i = 1; i <= 6; ++i) {
    steps.run([&] { steps.add(5); });
    EXPECT_THAT(steps.values(steps.y), Each(5.0F * static_cast<float>(i)));
  }
  steps.expect_counts(1, 4);
}

TEST_F(GraphsTest, LongStepsAreListsOf32AndShortOnesNone) {
  Steps steps;
  for (int i = 0; i < 4; ++i) steps.run([&] { steps.add(80); });
  EXPECT_THAT(steps.values(steps.y), Each(320.0F));
  steps.expect_counts(2, 8);  // the first two lists are one and the same
  for (int i = 0; i < 4; ++i) steps.run([&] { steps.add(2, steps.y, steps.x); });
  steps.expect_counts(2, 8);
}

TEST_F(GraphsTest, PromptsAndWhatStandsOutsideOfStepsAreNot) {
  Steps steps;
  for (int i = 0; i < 4; ++i) {
    steps.run([&] { steps.add(5); }, true);
    steps.add(5);
  }
  EXPECT_THAT(steps.values(steps.y), Each(40.0F));
  steps.expect_counts(0, 0);
}

// A list that begins as a known one, and goes on otherwise or ends early: what waited is launched in its place.
TEST_F(GraphsTest, AListThatLeavesAKnownOneIsComputedInOrder) {
  Steps steps;
  void* z = steps.device.allocate(kCols * sizeof(float));
  const auto known = [&] { steps.add(5); };
  for (int i = 0; i < 3; ++i) steps.run(known);
  steps.expect_counts(1, 1);
  steps.run([&] {
    steps.add(3);              // y = 18
    steps.add(1, steps.y, z);  // z = 18
    steps.add(2);              // y = 20
    steps.add(1, steps.y, z);  // z = 38
  });
  EXPECT_THAT(steps.values(steps.y), Each(20.0F));
  EXPECT_THAT(steps.values(z), Each(38.0F));
  steps.run([&] {
    steps.add(2);  // y = 22
    steps.add(1, steps.y, z);
    steps.add(2);  // five calls, as the known one has
  });
  EXPECT_THAT(steps.values(steps.y), Each(24.0F));
  EXPECT_THAT(steps.values(z), Each(60.0F));
  steps.run([&] { steps.add(4); });
  EXPECT_THAT(steps.values(steps.y), Each(28.0F));
  steps.run([&] { steps.add(6); });
  EXPECT_THAT(steps.values(steps.y), Each(34.0F));
  steps.expect_counts(1, 1);
  // Two that begin alike are both known in the end.
  for (int i = 0; i < 2; ++i) steps.run([&] { steps.add(6); });
  steps.run(known);
  EXPECT_THAT(steps.values(steps.y), Each(51.0F));
  steps.expect_counts(2, 3);
}

TEST_F(GraphsTest, CopiesWithinAStepKeepTheirPlace) {
  Steps steps;
  for (int i = 1; i <= 5; ++i) {
    steps.put(steps.x, 1);
    std::vector<float> between;
    steps.run([&] {
      steps.add(4);
      steps.put(steps.x, 10);  // the adds before it still see 1
      steps.add(4);
      between = steps.values(steps.y);
      steps.add(3);
    });
    EXPECT_THAT(between, Each(static_cast<float>(44 + (i - 1) * 74)));
    EXPECT_THAT(steps.values(steps.y), Each(static_cast<float>(74 * i)));
  }
  steps.expect_counts(2, 11);  // the lists of 4 are one and the same
}

// What a waiting call reads may be given back, and taken by somebody else, as soon as the call has returned.
TEST_F(GraphsTest, MemoryIsGivenBackAfterWhatWaitsForIt) {
  Steps steps;
  for (int i = 0; i < 3; ++i) steps.run([&] { steps.add(5); });
  steps.run([&] {
    steps.add(5);
    steps.device.release(steps.x);
    steps.x = steps.device.upload(std::vector<float>(kCols, 100));
  });
  EXPECT_THAT(steps.values(steps.y), Each(20.0F));
  steps.run([&] { steps.add(5); });
  EXPECT_THAT(steps.values(steps.y), Each(520.0F));
}

// W of n rows and k columns, and y = x·Wᵀ for rows of x.
struct Product {
  Steps& steps;
  choral_packed* weight = nullptr;

  Product(Steps& of, float value, int32_t dtype) : steps(of) {
    const std::vector<float> values(64 * 64, value);
    const choral_weight_part part{values.data(), 64, 64 * 4, nullptr};
    choral_weight described{};
    described.header = CHORAL_HEADER(choral_weight);
    described.stored_dtype = CHORAL_F32;
    described.dtype = dtype;
    described.cols = 64;
    described.parts = &part;
    described.part_count = 1;
    EXPECT_FINE(plugin().weights->prepack(steps.device.handle, steps.device.stream, &described, &weight, nullptr));
  }
  ~Product() { plugin().weights->release(steps.device.handle, weight); }
  void run(void* x, void* y, int64_t rows) {
    choral_matmul_args args{};
    args.header = CHORAL_HEADER(choral_matmul_args);
    args.weight = weight;
    args.x = matrix(x, rows, 64);
    args.y = matrix(y, rows, 64);
    EXPECT_EQ(steps.device.run("matmul", &args).code, 0);
  }
};

TEST_F(GraphsTest, AnotherWeightInAnOldOnesPlaceIsAnotherList) {
  Steps steps;
  void* x = steps.device.upload(std::vector<float>(64, 1));
  void* y = steps.device.allocate(64 * sizeof(float));
  for (const int32_t dtype : {CHORAL_F32, CHORAL_F16, CHORAL_BF16}) {
    for (const float value : {1.0F, 2.0F}) {
      Product product(steps, value, dtype);
      for (int i = 0; i < 4; ++i) {
        steps.run([&] {
          for (int times = 0; times < 3; ++times) product.run(x, y, 1);
        });
        EXPECT_THAT(steps.device.download<float>(y, 64), Each(64 * value)) << dtype;
      }
    }
  }
}

// A larger step wants more scratch, and what was captured on the old one is never launched again.
TEST_F(GraphsTest, ScratchThatGrowsIsAnotherOne) {
  Steps steps;
  Product product(steps, 1, CHORAL_BF16);
  void* x = steps.device.upload(std::vector<float>(512 * 64, 1));
  void* y = steps.device.allocate(512 * 64 * sizeof(float));
  const auto decode = [&] {
    for (int times = 0; times < 3; ++times) product.run(x, y, 2);
  };
  for (int i = 0; i < 3; ++i) steps.run(decode);
  steps.expect_counts(1, 1);
  product.run(x, y, 512);
  EXPECT_FINE(steps.synchronize());
  std::vector<void*> taken;  // where the old scratch was
  for (int i = 0; i < 64; ++i) taken.push_back(steps.device.allocate(256));
  for (int i = 0; i < 4; ++i) {
    steps.run(decode);
    EXPECT_THAT(steps.device.download<float>(y, 128), Each(64.0F));
  }
  for (const void* memory : taken) EXPECT_THAT(steps.device.download<uint8_t>(memory, 256), Each(0));
  steps.expect_counts(2, 4);
}

TEST_F(GraphsTest, TheSwitchIsOffOnOrAnError) {
  for (const char* value : {"0", "1", ""}) {
    setenv("CHORAL_CUDA_GRAPHS", value, 1);
    Steps steps;
    for (int i = 0; i < 3; ++i) steps.run([&] { steps.add(5); });
    EXPECT_THAT(steps.values(steps.y), Each(15.0F));
    const bool on = *value != '0';
    steps.expect_counts(on ? 1 : 0, on ? 1 : 0);
    EXPECT_FINE(plugin().workers[0].on_start(steps.device.handle));
    EXPECT_THAT(take_log().back(), HasSubstr(on ? "CUDA graphs are on" : "CUDA graphs are off (CHORAL_CUDA_GRAPHS=0)"));
  }
  setenv("CHORAL_CUDA_GRAPHS", "yes", 1);
  choral_device_config config{};
  config.header = CHORAL_HEADER(choral_device_config);
  choral_device* device = nullptr;
  const auto refused = seen(plugin().open_device(&config, &device));
  unsetenv("CHORAL_CUDA_GRAPHS");
  EXPECT_EQ(refused.code, CHORAL_INVALID_ARGUMENT);
  EXPECT_THAT(refused.message, AllOf(HasSubstr("CHORAL_CUDA_GRAPHS is 'yes'"), HasSubstr("0 launches")));
}

// ---- The keeping, by calls that launch nothing.

class Keeping : public GraphsTest {
 protected:
  void SetUp() override {
    GraphsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  }
  void TearDown() override {
    if (stream != nullptr) cudaStreamDestroy(stream);
    take_log();
  }
  // A step of kFewestCalls calls with this argument; whether it was launched as a graph.
  bool step(StepGraphs& graphs, int64_t argument) {
    const int64_t before = graphs.counts().launched;
    const OpCall call{
        "nothing", [](const Launch&, const void*) { return cudaSuccess; }, std::as_bytes(std::span(&argument, 1)), {}};
    graphs.begin_step();
    for (size_t i = 0; i < StepGraphs::kFewestCalls; ++i) EXPECT_EQ(graphs.run(call, launch()), cudaSuccess);
    graphs.end_step(launch());
    return graphs.counts().launched > before;
  }
  Launch launch() const { return {stream, 1, nullptr, 0, nullptr, 0}; }

  cudaStream_t stream = nullptr;
};

// As those do that read rows of weights.
TEST_F(Keeping, OtherThreadsMayWaitForTheirStreamsMeanwhile) {
  StepGraphs graphs;
  static cudaStream_t others = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&others, cudaStreamNonBlocking), cudaSuccess);
  const OpCall call{"waits elsewhere",
                    [](const Launch&, const void*) {
                      cudaError_t error = cudaSuccess;
                      std::thread([&] { error = cudaStreamSynchronize(others); }).join();
                      return error;
                    },
                    {},
                    {}};
  for (int i = 0; i < 3; ++i) {
    graphs.begin_step();
    for (size_t c = 0; c < StepGraphs::kFewestCalls; ++c) EXPECT_EQ(graphs.run(call, launch()), cudaSuccess);
    graphs.end_step(launch());
  }
  EXPECT_EQ(graphs.counts().launched, 1);
  cudaStreamDestroy(others);
}

TEST_F(Keeping, CapturesArePaidByLaunches) {
  StepGraphs graphs;
  int64_t next = 0;
  for (; graphs.counts().captured < StepGraphs::kFreeCaptures; ++next) {
    ASSERT_LT(next, 2 * StepGraphs::kFreeCaptures);
    step(graphs, next), step(graphs, next);
  }
  const auto captured_by = [&](int64_t argument) {
    const int64_t before = graphs.counts().captured;
    for (int i = 0; i < 5; ++i) step(graphs, argument);
    return graphs.counts().captured - before;
  };
  EXPECT_EQ(captured_by(next + 1), 0);
  for (int i = 0; i < StepGraphs::kLaunchesForACapture; ++i) EXPECT_TRUE(step(graphs, next - 1));
  EXPECT_EQ(captured_by(next + 2), 1);
  EXPECT_EQ(captured_by(next + 3), 0);
}

TEST_F(Keeping, TheLeastRecentlyUsedGoes) {
  StepGraphs graphs;
  const auto learn = [&](int64_t argument) {
    for (int i = 0; i < 2; ++i) EXPECT_FALSE(step(graphs, argument));
  };
  learn(-1);
  const auto all = static_cast<int64_t>(StepGraphs::kMostGraphs) + 8;
  for (int64_t i = 0; i < all; ++i) {  // -1 pays for each, and so is used all the time
    for (int paid = 0; paid < StepGraphs::kLaunchesForACapture; ++paid) ASSERT_TRUE(step(graphs, -1));
    learn(i);
  }
  EXPECT_EQ(graphs.counts().captured, all + 1);
  EXPECT_TRUE(step(graphs, -1));
  EXPECT_FALSE(step(graphs, 0));
  EXPECT_TRUE(step(graphs, all - 1));
}

}  // namespace
}  // namespace choral_cuda
