// Capture of streams, and graphs.
#include "runtime.h"

using cuda_emulation::call;
using cuda_emulation::InCapture;
using cuda_emulation::Runtime;
using cuda_emulation::runtime;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", InCapture::kFine, [&](Runtime&) {
    if (stream == nullptr) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    stream->capture.reset(new cuda_emulation::Capture{mode, std::this_thread::get_id(), false, {}});
    return cudaSuccess;
  });
}

// Ends the capture whatever becomes of it.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard held(runtime().lock);
  *graph = nullptr;
  if (stream->capture == nullptr) return cuda_emulation::note(cudaErrorIllegalState);
  const auto capture = std::move(stream->capture);
  return call("cudaStreamEndCapture", InCapture::kFine, [&](Runtime& r) {
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
      return cudaErrorStreamCaptureWrongThread;
    }
    if (capture->spoiled) return cudaErrorStreamCaptureInvalidated;
    *graph = new CUgraph_st{stream->device, std::move(capture->work)};
    ++r.graphs;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const std::lock_guard held(runtime().lock);
  --runtime().graphs;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* graph, cudaGraph_t description, unsigned long long) {
  return call("cudaGraphInstantiate", [&](Runtime& r) {
    *graph =
        new CUgraphExec_st{description->device, std::make_shared<const std::vector<cuda_emulation::Work>>(description->work)};
    ++r.graphs;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  const std::lock_guard held(runtime().lock);
  --runtime().graphs;
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&](Runtime&) {
    if (stream->device != graph->device) return cudaErrorInvalidResourceHandle;
    return stream->push([work = graph->work] {
      for (const auto& one : *work) one();
    });
  });
}
