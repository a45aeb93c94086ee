// An open device: its operators, its memory, and what passes between it and the host. One per worker, opened by its Platform.
// allocate() and prepack() are for loading; the rest belongs to the engine thread. Tensors and matrices made here keep the device
// open as long as they live.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/gemm/pack_spec.h"
#include "kernels/machine_peaks.h"
#include "platform/ops/op_table.h"
#include "platform/side_copies.h"
#include "tensor/tensor.h"

namespace choral::platform {

class Platform;

// What a step is about to do, for workers that prepare or record it.
struct StepFacts {
  int64_t index = 0;
  int64_t rows = 0;
  int64_t sequences = 0;
  bool has_prefill = false;
  bool has_adapters = false;
};

// What a device says of its memory; the memory plan goes by that.
struct DeviceMemory {
  int64_t free_bytes = 0;  // now
  int64_t total_bytes = 0;
  bool is_hosts = false;  // it is the machine's, of which the device takes no more than this
};

struct CacheHeads {
  DType dtype = DType::kF32;
  int64_t kv_heads = 0, key_dim = 0, value_dim = 0;
  bool values_in_keys = false;
};

enum class CopyKind { kToDevice, kToHost, kOnDevice };

class Session {
 public:
  virtual ~Session() = default;

  virtual const Platform& platform() const = 0;
  // What runs: every entry can be called. Entries change only between steps, and only to another provider.
  virtual const OpTable& ops() const = 0;
  // The forms that this device brings for CustomOps, by their operators; the others' `run` is null.
  virtual const OpTable& custom_ops() const = 0;
  virtual Arena& memory() = 0;   // the step's, on the device
  virtual Arena& scratch() = 0;  // the step's, on the host; the same where the host reads the device's memory

  // Nothing where the host computes, or where the device does not say.
  virtual Result<std::optional<DeviceMemory>> device_memory() const { return std::optional<DeviceMemory>(); }
  // Before the model is loaded: it will have such a cache. A device that does not take it leaves the cache to the host, and a
  // note says why.
  virtual void expect_cache(const CacheHeads&) {}
  // Whether the next one gives the device's memory.
  virtual bool keeps_kv() const { return false; }
  // Zero-filled memory for keys and values, where the operators on the cache expect it.
  virtual Result<Tensor> allocate_kv(DType dtype, Shape shape) = 0;
  // Packs a stored weight in this device's layout.
  virtual Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const Context& ctx, const kernels::PackSpec& weight) = 0;
  // Whether the operators on adapters' stacks are the device's: then adapters live in its memory. Else the reason why not.
  virtual Status computes_adapters() const = 0;
  // Whether rows of logits are sampled by the device, so that they need not come to the host.
  virtual bool samples() const { return false; }
  // Zero-filled memory of the device for as long as the tensor lives: adapters' slots.
  virtual Result<Tensor> allocate(DType dtype, Shape shape) = 0;
  // A copy of host values that lives as long as the model: a norm's weight, a bias, a table.
  virtual Result<Tensor> keep(std::span<const float> values) = 0;

  // Whether the host may touch the device's memory now, by the same pointers: where it can at all, and nothing is queued;
  // `waits`: what is queued is waited for. Elsewhere it copies. Until something is queued again.
  virtual bool reach_memory(bool waits);
  // Not where the host computes. Host memory may be reused at once, and read when this returns.
  virtual void copy(CopyKind kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
                    int64_t rows) = 0;
  // For copies of another thread's beside all of this; null: the device is called by one thread at a time.
  virtual Result<std::unique_ptr<SideCopies>> copies_beside() { return std::unique_ptr<SideCopies>(); }
  // Copies to the host since the session was opened.
  virtual int64_t host_copies() const { return 0; }
  virtual int64_t host_copied_bytes() const { return 0; }
  // The step's sequences in the form of the device's attention.
  virtual SequenceBatch place_sequences(std::span<const kernels::AttentionSequence> sequences) = 0;

  // From now on a step calls `work`, which is the host's own, whenever it is about to wait for the device. False: it never will,
  // since the host computes.
  virtual bool on_wait(std::function<void()> work);
  virtual void begin_step(const StepFacts& step) = 0;
  // What a layer could not have of the device: the step goes on, and end_step() gives the first such reason. Fine ones change
  // nothing. Where the host computes, only a file in which weights lie can fail.
  virtual void fail(Status status);
  // Fine, or why what the step computed can't be used.
  virtual Status end_step(const StepFacts& step) = 0;

  // For those who measure. Peaks of what computes here, the CPU with the context's threads or the device; nothing else may run
  // meanwhile. unsupported: the device states none.
  virtual Result<kernels::MachinePeaks> measure_peaks(const Context& ctx) const = 0;
  // How long the host has waited for the device since the session was opened; nothing where the host computes itself.
  virtual std::optional<double> waited_s() const { return {}; }
  // Whether an operator of the device returns only when it is done, so that OpProfile sees its time, or as soon as it is queued.
  virtual void finish_each_operator(bool) {}

  // What was chosen or given up since the last call, with reasons; for the log and ModelInfo::notes.
  virtual std::vector<std::string> take_notes() { return {}; }
};

// Whether the host computes: pointers to the session's memory are its own, and nothing is ever queued.
bool host_reads(const Session& session);

}  // namespace choral::platform
