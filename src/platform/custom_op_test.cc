// Which form of a CustomOp is bound, by the name of the device and by what it brings.
#include "platform/custom_op.h"

#include <gtest/gtest.h>

#include "platform/cpu_context_test.h"

namespace choral::platform {
namespace {

// A device under any name, whose memory the host reads: the CPU's operators, and a form of rms_norm of its own.
class NamedPlatform : public Platform {
 public:
  explicit NamedPlatform(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  Device device() const override { return kCpuDevice; }
  std::string description() const override { return name_; }
  Result<std::unique_ptr<Session>> open(ThreadPool&, const PlatformConfig&) const override { return unsupported("a test's"); }

 private:
  std::string name_;
};

class NamedSession : public Session {
 public:
  explicit NamedSession(std::string name) : platform_(std::move(name)) {
    custom_.rms_norm.serve(ops::RmsNorm::forward_native, "its own");
  }
  const Platform& platform() const override { return platform_; }
  const OpTable& ops() const override { return cpu_ops(); }
  const OpTable& custom_ops() const override { return custom_; }
  Arena& memory() override { return arena_; }
  Arena& scratch() override { return arena_; }
  Result<Tensor> allocate_kv(DType, Shape) override { return unsupported("a test's"); }
  Status computes_adapters() const override { return unsupported("a test's"); }
  Result<Tensor> allocate(DType, Shape) override { return unsupported("a test's"); }
  Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const Context&, const kernels::PackSpec&) override {
    return unsupported("a test's");
  }
  Result<Tensor> keep(std::span<const float>) override { return unsupported("a test's"); }
  void copy(CopyKind, void*, int64_t, const void*, int64_t, int64_t, int64_t) override {}
  SequenceBatch place_sequences(std::span<const kernels::AttentionSequence> sequences) override { return {.host = sequences}; }
  void begin_step(const StepFacts&) override {}
  Status end_step(const StepFacts&) override { return {}; }
  Result<kernels::MachinePeaks> measure_peaks(const Context&) const override { return unsupported("a test's"); }

 private:
  NamedPlatform platform_;
  Arena arena_;
  OpTable custom_;
};

class Norm : public CustomOp {
 public:
  Norm(const CustomOpConfig& config, const Session& session) : CustomOp("rms_norm", config, session) {}
  const std::string& provider() const { return bind<ops::RmsNorm>().provider; }
  const std::string& heads_provider() const { return bind<ops::RmsNormHeads>().provider; }
  bool fuses_with(std::string_view provider) const { return agrees_with<ops::RmsNorm>(provider); }
};

TEST(CustomOp, ADevicesOwnFormRunsWhateverTheDeviceIsCalled) {
  for (const auto& [name, form] : {std::pair{"cuda", OpForm::kCuda}, std::pair{"my_device", OpForm::kOot}}) {
    SCOPED_TRACE(name);
    const NamedSession session(name);
    const Norm norm({}, session);
    EXPECT_EQ(norm.form(), form);
    EXPECT_EQ(norm.provider(), "its own");
    EXPECT_EQ(norm.heads_provider(), "cpu") << "what it does not bring is the table's";
    EXPECT_FALSE(norm.fuses_with("cpu"));
    EXPECT_TRUE(norm.fuses_with("its own"));
  }
}

TEST(CustomOp, ItGivesWayToTheListAndToAPatch) {
  const NamedSession session("cuda");
  EXPECT_EQ(Norm(*CustomOpConfig::parse("-rms_norm"), session).provider(), "native");
  CustomOpConfig patched;
  ASSERT_TRUE(patched.force("rms_norm", "cpu").ok());
  EXPECT_EQ(Norm(patched, session).provider(), "cpu");
}

}  // namespace
}  // namespace choral::platform
