// What becomes of graphs where CUDA fails, which the emulated runtime does on demand: the answers are as without them, or the
// error is the one of the operator.
#include "test_device.h"

namespace choral_cuda {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Steps of five adds: y grows by 5 in each.
class FaultySteps {
 public:
  explicit FaultySteps(const std::string& faults) : faults_(faults) { take_log(); }

  TestStatus add_once() {
    const choral_unary_args args{CHORAL_HEADER(choral_unary_args), matrix(x_, 1, 16), matrix(y, 1, 16)};
    return device.run("add", &args);
  }
  void add(int times) {
    for (int i = 0; i < times; ++i) EXPECT_EQ(add_once().code, 0) << "queued";
  }
  TestStatus step(int adds = 5) {
    const auto& worker = plugin().workers[0];
    choral_step step{};
    step.header = CHORAL_HEADER(choral_step);
    EXPECT_FINE(worker.begin_step(device.handle, device.stream, &step));
    add(adds);
    EXPECT_FINE(worker.end_step(device.handle, device.stream, &step));
    return seen(plugin().memory->stream_synchronize(device.handle, device.stream));
  }
  std::vector<float> values() { return device.download<float>(y, 16); }
  std::string stop() {
    plugin().workers[0].on_stop(device.handle);
    return take_log().back();
  }

 private:
  Emulation faults_;

 public:
  OpenDevice device;
  void* y = device.allocate(16 * sizeof(float));

 private:
  void* x_ = device.upload(std::vector<float>(16, 1));
};

struct Fault {
  const char* name;
  const char* faults;
  const char* says;
};
class GraphFaultsTest : public ::testing::TestWithParam<Fault> {};

// One line, and from then on operator by operator.
TEST_P(GraphFaultsTest, EndGraphsVisiblyAndNothingElse) {
  FaultySteps steps(GetParam().faults);
  for (int i = 1; i <= 6; ++i) {
    const auto status = steps.step();
    EXPECT_EQ(status.code, 0) << status.message;
    EXPECT_THAT(steps.values(), Each(5.0F * static_cast<float>(i)));
  }
  EXPECT_THAT(take_log(), ElementsAre(AllOf(HasSubstr("CUDA graphs are off from here on"), HasSubstr(GetParam().says))));
  EXPECT_THAT(steps.stop(), HasSubstr("launched 0 times"));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, GraphFaultsTest,
    ::testing::Values(Fault{"a_stream", "fail=cudaStreamCreateWithFlags,at=4,with=2", "capture: out of memory"},
                      Fault{"begin", "fail=cudaStreamBeginCapture,with=801", "capture: operation not supported"},
                      Fault{"an_operator", "fail=enqueue,at=13,with=9", "capture: invalid configuration argument"},
                      Fault{"end", "fail=cudaStreamEndCapture,with=901", "capture: operation failed due to a previous error"},
                      Fault{"no_memory", "fail=cudaGraphInstantiate,with=2", "capture: out of memory"},
                      Fault{"launch", "fail=cudaGraphLaunch,with=2", "cudaGraphLaunch: out of memory"}),
    [](const auto& tested) { return std::string(tested.param.name); });

// Calls 1 to 5 of the first step, 6 to 10 of the second, 11 to 15 captured; 16 is the first that waited.
TEST(GraphFaults, OfACallThatWaitedAreThatOperatorsAndComeOutWhereItIsWaitedFor) {
  FaultySteps steps("fail=enqueue,at=16,with=9");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps.step().code, 0);
  const auto failed = steps.step(2);
  EXPECT_EQ(failed.code, CHORAL_INTERNAL);
  EXPECT_THAT(failed.message, HasSubstr("add: invalid configuration argument"));
  EXPECT_EQ(steps.step().code, 0) << "it was told";
  EXPECT_THAT(steps.values(), Each(20.0F));
}

TEST(GraphFaults, OfACopyToTheHostToo) {
  FaultySteps steps("fail=enqueue,at=16,with=9");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(steps.step().code, 0);
  choral_step step{};
  step.header = CHORAL_HEADER(choral_step);
  EXPECT_FINE(plugin().workers[0].begin_step(steps.device.handle, steps.device.stream, &step));
  steps.add(2);
  std::vector<float> host(16);
  const auto failed = steps.device.copy(CHORAL_DEVICE_TO_HOST, host.data(), 64, steps.y, 64, 64, 1);
  EXPECT_THAT(failed.message, HasSubstr("add: invalid configuration argument"));
}

// The third call of the second step is refused when it is called; that step is no graph.
TEST(GraphFaults, OfACallThatIsLaunchedAtOnceAreThatCallsAlone) {
  FaultySteps steps("fail=enqueue,at=8,with=9");
  EXPECT_EQ(steps.step().code, 0);
  choral_step step{};
  step.header = CHORAL_HEADER(choral_step);
  EXPECT_FINE(plugin().workers[0].begin_step(steps.device.handle, steps.device.stream, &step));
  steps.add(2);
  const auto failed = steps.add_once();
  EXPECT_THAT(failed.message, HasSubstr("add: invalid configuration argument"));
  steps.add(2);
  EXPECT_FINE(plugin().workers[0].end_step(steps.device.handle, steps.device.stream, &step));
  EXPECT_THAT(steps.values(), Each(9.0F));
  EXPECT_THAT(steps.stop(), HasSubstr(": 0 CUDA graphs were captured"));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(steps.step().code, 0);
  EXPECT_THAT(steps.values(), Each(19.0F));
  EXPECT_THAT(steps.stop(), HasSubstr(": 1 CUDA graphs were captured, and launched 1 times"));
}

// The 13th kernel that runs is the third one of the graph.
TEST(GraphFaults, ADeviceLostInTheMiddleOfAGraphIsLost) {
  FaultySteps steps("fail=launch,at=13,with=700");
  EXPECT_EQ(steps.step().code, 0);
  EXPECT_EQ(steps.step().code, 0);
  const auto failed = steps.step();
  EXPECT_EQ(failed.code, CHORAL_UNAVAILABLE);
  EXPECT_THAT(failed.message, HasSubstr("an illegal memory access was encountered"));
  EXPECT_THAT(take_log(), Not(Contains(HasSubstr("CUDA graphs are off"))));
  choral_step step{};
  step.header = CHORAL_HEADER(choral_step);
  EXPECT_EQ(seen(plugin().workers[0].end_step(steps.device.handle, steps.device.stream, &step)).code, CHORAL_UNAVAILABLE);
}

}  // namespace
}  // namespace choral_cuda
