// Streams that are captured, and graphs, on the emulated runtime: that it is as strict as CUDA.
#include <gmock/gmock.h>

#include <functional>
#include <thread>

#include "queue.h"
#include "runtime_api.h"

namespace cuda_emulation {
namespace {

class CaptureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
  }
  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  }
  // `sum` grows by the value at the time of the call.
  cudaError_t add(int value) {
    return enqueue(stream, [this, value] { sum += value; });
  }
  cudaError_t end() {
    const cudaError_t error = cudaStreamEndCapture(stream, &graph);
    EXPECT_EQ(graph != nullptr, error == cudaSuccess);
    return error;
  }

  cudaStream_t stream = nullptr, other = nullptr;
  cudaGraph_t graph = nullptr;
  int sum = 0;
};

TEST_F(CaptureTest, RunsNothingAndReplaysWhatItWasGiven) {
  begin();
  for (int value = 1; value <= 3; ++value) EXPECT_EQ(add(value), cudaSuccess);
  ASSERT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(sum, 0);
  cudaGraphExec_t runs = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&runs, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cudaGraphLaunch(runs, stream), cudaSuccess);
  EXPECT_EQ(sum, 0) << "as late as possible";
  EXPECT_EQ(cudaGraphExecDestroy(runs), cudaSuccess) << "what waits still runs";
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(sum, 12);
}

TEST_F(CaptureTest, IsSpoiledByWhatIsNotCaptured) {
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&event, 0), cudaSuccess);
  const std::function<cudaError_t()> forbidden[] = {
      [&] { return cudaStreamSynchronize(stream); },
      [&] { return cudaStreamSynchronize(other); },
      [&] { return cudaHostAlloc(&memory, 64, 0); },
      [&] { return cudaEventRecord(event, stream); },
      [&] { return cudaEventSynchronize(event); },
      [&] { return cudaMallocFromPoolAsync(&memory, 64, nullptr, stream); },
      [&] { return cudaStreamCreateWithFlags(nullptr, 0); },
  };
  for (const auto& call : forbidden) {
    begin();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(add(1), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << "the stream is as before";
  }
  EXPECT_EQ(sum, 0);
  cudaEventDestroy(event);
}

TEST_F(CaptureTest, LetsOtherThreadsGoOnIfItIsThisThreadsAlone) {
  const auto wait_elsewhere = [&] {
    cudaError_t error = cudaErrorUnknown;
    std::thread([&] { error = cudaStreamSynchronize(other); }).join();
    return error;
  };
  begin(cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(wait_elsewhere(), cudaSuccess);
  ASSERT_EQ(end(), cudaSuccess);
  cudaGraphDestroy(graph);
  begin(cudaStreamCaptureModeGlobal);
  EXPECT_EQ(wait_elsewhere(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  begin();
  cudaError_t error = cudaSuccess;
  std::thread([&] { error = end(); }).join();
  EXPECT_EQ(error, cudaErrorStreamCaptureWrongThread);
}

TEST_F(CaptureTest, IsBegunOnceAndEndedOnce) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeRelaxed), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorIllegalState);
  begin();
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaErrorIllegalState);
  ASSERT_EQ(end(), cudaSuccess);
  cudaGraphDestroy(graph);
}

}  // namespace
}  // namespace cuda_emulation
