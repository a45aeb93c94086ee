// The CPU's session as one of a device that takes copies beside its steps, each slot's when the test says so. Tests only.
#pragma once

#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "platform/cpu_context_test.h"

namespace choral::lora::testing {

class CopyGate {
 public:
  // --- the test's ---
  void allow(int slots) {
    const std::lock_guard lock(mutex_);
    allowed_ += slots;
    changed_.notify_all();
  }
  void open() { allow(1 << 20); }
  void fail_with(Status why) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(why);
  }
  // Until so many slots are written, or were given up.
  void wait_for_ended(int slots) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ >= slots; });
  }
  int ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // The wake of who carries copies out: after the end of a slot.
  void note_end() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }

  // --- the copies' ---
  Status pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return written_ < allowed_; });
    return failure_;
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    ++written_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = 0, written_ = 0, ended_ = 0;
  Status failure_;
};

class GatedCopies : public platform::SideCopies {
 public:
  explicit GatedCopies(CopyGate& gate) : gate_(gate) {}
  Status copy(std::byte* to, int64_t to_pitch, const std::byte* from, int64_t from_pitch, int64_t row_bytes,
              int64_t rows) override {
    CHORAL_RETURN_IF_ERROR(gate_.pass());
    for (int64_t row = 0; row < rows; ++row) std::memcpy(to + row * to_pitch, from + row * from_pitch, row_bytes);
    return {};
  }
  Status finish() override {
    gate_.finish();
    return {};
  }

 private:
  CopyGate& gate_;
};

class GatedSession : public platform::Session {
 public:
  // `cpu` and `gate` outlive this.
  GatedSession(platform::Session& cpu, CopyGate& gate) : cpu_(cpu), gate_(gate) {}

  const platform::Platform& platform() const override { return cpu_.platform(); }
  const platform::OpTable& ops() const override { return cpu_.ops(); }
  const platform::OpTable& custom_ops() const override { return cpu_.custom_ops(); }
  Arena& memory() override { return cpu_.memory(); }
  Arena& scratch() override { return cpu_.scratch(); }
  Result<Tensor> allocate_kv(DType dtype, Shape shape) override { return cpu_.allocate_kv(dtype, shape); }
  Result<std::unique_ptr<kernels::PackedMatrix>> prepack(const platform::Context& ctx, const kernels::PackSpec& weight) override {
    return cpu_.prepack(ctx, weight);
  }
  Status computes_adapters() const override { return {}; }
  Result<Tensor> allocate(DType dtype, Shape shape) override { return cpu_.allocate(dtype, shape); }
  Result<Tensor> keep(std::span<const float> values) override { return cpu_.keep(values); }
  void copy(platform::CopyKind kind, void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes,
            int64_t rows) override {
    cpu_.copy(kind, to, to_pitch, from, from_pitch, row_bytes, rows);
  }
  Result<std::unique_ptr<platform::SideCopies>> copies_beside() override {
    return std::unique_ptr<platform::SideCopies>(std::make_unique<GatedCopies>(gate_));
  }
  platform::SequenceBatch place_sequences(std::span<const kernels::AttentionSequence> sequences) override {
    return cpu_.place_sequences(sequences);
  }
  void begin_step(const platform::StepFacts& step) override { cpu_.begin_step(step); }
  void fail(Status status) override { failure = std::move(status); }
  Status end_step(const platform::StepFacts& step) override { return cpu_.end_step(step); }
  Result<kernels::MachinePeaks> measure_peaks(const platform::Context& ctx) const override { return cpu_.measure_peaks(ctx); }

  Status failure;  // what the session was told

 private:
  platform::Session& cpu_;
  CopyGate& gate_;
};

}  // namespace choral::lora::testing
