// A plug-in's device as a Session: its operators in the op table, and the host's on copies for everything it lacks or failed at.
//
// An operator that returns an error is not called again: the host does the same on copies, now and from then on, and a note says
// why. Only what lives on the device in an order of its own can't be served so — the KV cache — and a device whose queue or
// memory fails is lost: the step then fails with the device's reason. A step for which it has too little memory fails alone.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "platform/ops/cpu_ops.h"
#include "platform/platform.h"
#include "platform/plugin/plugin_device.h"

namespace choral::platform {

// By whom an operator's function was given.
enum class OpSet { kTable, kCustom };

class PluginSession : public Session {
 public:
  static Result<std::unique_ptr<Session>> open(const Platform& platform, std::shared_ptr<const PluginLibrary> plugin,
                                               const PluginProbe& probe, ThreadPool& pool, const PlatformConfig& config);
  ~PluginSession() override;

  const Platform& platform() const override { return platform_; }
  const OpTable& ops() const override { return ops_; }
  const OpTable& custom_ops() const override { return custom_; }
  Arena& memory() override { return memory_; }
  Arena& scratch() override { return scratch_; }
  Result<std::optional<DeviceMemory>> device_memory() const override { return device_->memory(); }
  void expect_cache(const CacheHeads& heads) override;
  bool keeps_kv() const override { return kv_on_device_; }
  Result<Tensor> allocate_kv(DType dtype, Shape shape) override;
  Status computes_adapters() const override;
  bool samples() const override { return serves(kOpId<ops::Sample>); }
  Result<Tensor> allocate(DType dtype, Shape shape) override;
  Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const Context& ctx, const kernels::PackSpec& weight) override;
  Result<Tensor> keep(std::span<const float> values) override;
  bool reach_memory(bool waits) override;
  void copy(CopyKind kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
            int64_t rows) override;
  Result<std::unique_ptr<SideCopies>> copies_beside() override { return device_->copies_beside(); }
  int64_t host_copies() const override { return host_copies_; }
  int64_t host_copied_bytes() const override { return host_copied_bytes_; }
  SequenceBatch place_sequences(std::span<const kernels::AttentionSequence> sequences) override;
  bool on_wait(std::function<void()> work) override {
    before_wait_ = std::move(work);
    return true;
  }
  void begin_step(const StepFacts& step) override;
  void fail(Status status) override;
  Status end_step(const StepFacts& step) override;
  Result<kernels::MachinePeaks> measure_peaks(const Context&) const override { return device_->measure_peaks(); }
  std::optional<double> waited_s() const override { return device_->waited_s(); }
  void finish_each_operator(bool finish) override { finish_each_ = finish; }
  std::vector<std::string> take_notes() override;

  // For the table's functions: runs the device's operator. False when it has none (any more), and the caller must serve it.
  bool call(OpSet set, OpId op, const void* args);
  // The same for what nobody else can do: without an answer the step fails.
  void must_call(OpId op, const void* args);
  // While operators are tried, one that fails is not given up: this says, once, why the last one failed.
  Status take_refusal() { return std::exchange(refusal_, {}); }
  // The weight in the device's layout, or why it is not taken; unsupported is the device's word.
  Result<std::unique_ptr<kernels::PackedMatrix>> pack_on_device(const kernels::PackSpec& weight);
  // Loads the library of fused operators once, and holds each to its reference; whether it is there.
  bool enable_custom_op(const Context& ctx);
  const std::string& device_name() const { return device_->plugin().name; }

 private:
  PluginSession(const Platform& platform, std::shared_ptr<PluginDevice> device);

  // Whether the table's form is the device's own.
  bool serves(OpId op) const { return functions_[static_cast<size_t>(OpSet::kTable)][static_cast<size_t>(op)] != nullptr; }
  // Whether the table says that it is, be it by a fused library that is not loaded yet.
  bool is_named_for(OpId op) const;
  Status check_patches(const std::vector<Patch>& patches) const;
  Status declare_ops(const PlatformConfig& config);
  Status declare_custom_ops();
  void register_dummy_fusion_op();
  void serve_kv_in_pairs(const PlatformConfig& config);
  void leave_kv_to_host(const std::string& why);
  Status find_worker(const std::string& name);
  void serve_stacks_together();
  Status refuse_fallbacks() const;
  Status supports(OpId op, const PlatformConfig& config);
  Status conform(ThreadPool& pool);
  Status try_op(const Context& ctx, OpId op, OpSet set);
  Status try_form(const Context& ctx, const kernels::PackSpec& weight);
  Status fall_back(std::string note);
  void withdraw(OpId op, OpSet set, std::string_view why);
  bool ends_step(OpId op, const Status& failed);
  choral_step step_of(const StepFacts& facts) const;
  void about_to_wait();

  const Platform& platform_;
  std::shared_ptr<PluginDevice> device_;
  Arena memory_, scratch_;
  OpTable ops_, custom_;
  std::array<std::array<choral_op_fn, AllOps::kSize>, 2> functions_{};  // by OpSet
  const choral_worker_class* worker_ = nullptr;
  bool kv_on_device_ = false;
  int64_t host_copies_ = 0, host_copied_bytes_ = 0;
  enum class Fused { kNone, kDeclared, kLoaded, kFailed } fused_ = Fused::kNone;
  std::function<void()> before_wait_;
  bool queued_ = false;  // something since the stream was last waited for
  bool in_step_ = false;
  bool strict_ = false;
  bool finish_each_ = false;  // operators are timed
  bool trying_ = false;       // an operator is held to its vectors: what it refuses goes to refusal_
  Status refusal_;
  std::vector<std::pair<WeightForm, Status>> forms_;  // of quantised weights, held to the host's product by the first of each
  Status lost_;                                       // why the device is gone
  Status no_memory_;                                  // why the step's memory could not grow
  std::vector<std::string> notes_;
};

}  // namespace choral::platform
