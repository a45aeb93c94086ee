// The built-in device: every operator is a kernel of kernels/, every weight a packed matrix in host memory.
#include <fmt/format.h>

#include "kernels/roofline.h"
#include "platform/ops/cpu_ops.h"
#include "platform/platform.h"

namespace choral::platform {
namespace {

class CpuSession : public Session {
 public:
  CpuSession(const Platform& platform, bool strict) : platform_(platform), strict_(strict) {}

  const Platform& platform() const override { return platform_; }
  const OpTable& ops() const override { return cpu_ops(); }
  const OpTable& custom_ops() const override { return none_; }
  Arena& memory() override { return arena_; }
  Arena& scratch() override { return arena_; }

  Result<Tensor> allocate_kv(DType dtype, Shape shape) override { return Tensor::allocate(dtype, shape); }
  Status computes_adapters() const override { return unsupported("the host computes with packed panels"); }
  Result<Tensor> allocate(DType dtype, Shape shape) override { return Tensor::allocate(dtype, shape); }

  Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const Context& ctx, const kernels::PackSpec& weight) override {
    if (weight.activations == kernels::Activations::k16Bits) {
      if (strict_) return unsupported("--strict: {}", kInFull);
      rounds_x_ = true;
    }
    return kernels::pack_weight(weight, ctx.kernel.pool);
  }

  Result<Tensor> keep(std::span<const float> values) override {
    CHORAL_TRY(auto tensor, Tensor::allocate(DType::kF32, {std::ssize(values)}));
    std::copy(values.begin(), values.end(), tensor.as<float>().begin());
    return tensor;
  }

  void copy(CopyKind, void*, int64_t, const void*, int64_t, int64_t, int64_t) override {
    CHORAL_CHECK(false, "the host reads the CPU's memory itself");
  }
  SequenceBatch place_sequences(std::span<const kernels::AttentionSequence> sequences) override { return {.host = sequences}; }
  void begin_step(const StepFacts&) override {}
  void fail(Status status) override {
    if (failed_.ok()) failed_ = std::move(status);
  }
  Status end_step(const StepFacts&) override { return std::exchange(failed_, Status()); }
  Result<kernels::MachinePeaks> measure_peaks(const Context& ctx) const override { return kernels::measure_peaks(ctx.kernel); }
  std::vector<std::string> take_notes() override {
    return std::exchange(rounds_x_, false) ? std::vector<std::string>{kInFull} : std::vector<std::string>{};
  }

 private:
  Status failed_;  // the first of a step's
  static constexpr const char* kInFull = "cpu: weights meet x in full: x in 16 bits is for devices";

  const Platform& platform_;
  bool strict_;
  bool rounds_x_ = false;  // as was asked for since notes were taken
  Arena arena_;
  OpTable none_;
};

class CpuPlatform : public Platform {
 public:
  std::string_view name() const override { return "cpu"; }
  Device device() const override { return kCpuDevice; }
  std::string description() const override { return fmt::format("this machine's CPU, level {}", cpu_level_name(cpu_level())); }
  Result<std::unique_ptr<Session>> open(ThreadPool&, const PlatformConfig& config) const override {
    return std::make_unique<CpuSession>(*this, config.strict);
  }
};

}  // namespace

const Platform& cpu_platform() {
  static const CpuPlatform kPlatform;
  return kPlatform;
}

}  // namespace choral::platform
