#include "lora/stacked/lora_memory_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked_math.h"

namespace choral::lora {
namespace {

// Bytes of rows × cols floats, each row's count and the product checked.
Result<size_t> float_bytes(int64_t rows, int64_t cols) {
  if (rows < 0 || cols < 0) return invalid_argument("a LoRA buffer of {} x {} floats is asked for", rows, cols);
  const auto floats = checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(cols));
  const auto bytes = floats ? checked_mul(*floats, sizeof(float)) : std::nullopt;
  if (!bytes || *bytes > static_cast<uint64_t>(INT64_MAX)) {
    return too_large("a LoRA buffer of {} x {} floats does not fit into memory", rows, cols);
  }
  return static_cast<size_t>(*bytes);
}

}  // namespace

LoRAMemoryPool::Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      is_output_(other.is_output_),
      slot_(other.slot_),
      own_(std::move(other.own_)),
      view_(std::exchange(other.view_, {})) {}

LoRAMemoryPool::Lease& LoRAMemoryPool::Lease::operator=(Lease&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  pool_ = std::exchange(other.pool_, nullptr);
  is_output_ = other.is_output_;
  slot_ = other.slot_;
  own_ = std::move(other.own_);
  view_ = std::exchange(other.view_, {});
  return *this;
}

LoRAMemoryPool::Lease::~Lease() { give_back(); }

void LoRAMemoryPool::Lease::give_back() {
  if (pool_ == nullptr) return;
  Buffers& buffers = is_output_ ? pool_->outputs_ : pool_->middles_;
  if (slot_ >= 0) buffers.free.push_back(slot_);
  --(is_output_ ? pool_->stats_.outputs_out : pool_->stats_.middles_out);
  pool_ = nullptr;
}

Result<std::unique_ptr<LoRAMemoryPool>> LoRAMemoryPool::make(const LoRAMemoryPoolSize& size) {
  std::unique_ptr<LoRAMemoryPool> pool(new LoRAMemoryPool);
  CHORAL_RETURN_IF_ERROR(fill(pool->middles_, size.max_tokens, size.max_rank, size.middles).while_("making LoRA middles"));
  CHORAL_RETURN_IF_ERROR(fill(pool->outputs_, size.max_tokens, size.max_columns, size.outputs).while_("making LoRA outputs"));
  return pool;
}

LoRAMemoryPool::~LoRAMemoryPool() {
  CHORAL_CHECK(stats_.middles_out == 0 && stats_.outputs_out == 0, "a LoRA buffer outlives its pool");
}

Status LoRAMemoryPool::fill(Buffers& buffers, int64_t rows, int64_t cols, int count) {
  if (count < 0) return invalid_argument("{} LoRA buffers are asked for", count);
  CHORAL_TRY(const size_t bytes, float_bytes(rows, cols));
  buffers.floats = rows * cols;
  buffers.free.reserve(static_cast<size_t>(count));
  for (int slot = 0; slot < count; ++slot) {
    CHORAL_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes));
    buffers.all.push_back(std::move(buffer));
    buffers.free.push_back(slot);
  }
  return {};
}

Result<LoRAMemoryPool::Lease> LoRAMemoryPool::take_middle(int64_t tokens, int64_t rank) { return take(false, tokens, rank); }
Result<LoRAMemoryPool::Lease> LoRAMemoryPool::take_output(int64_t tokens, int64_t columns) { return take(true, tokens, columns); }

Result<LoRAMemoryPool::Lease> LoRAMemoryPool::take(bool is_output, int64_t rows, int64_t cols) {
  CHORAL_TRY(const size_t bytes, float_bytes(rows, cols));
  Buffers& buffers = is_output ? outputs_ : middles_;
  Lease lease;
  float* data = nullptr;
  if (rows * cols <= buffers.floats && !buffers.free.empty()) {
    lease.slot_ = buffers.free.back();
    buffers.free.pop_back();
    data = buffers.all[static_cast<size_t>(lease.slot_)].as<float>().data();
  } else {
    CHORAL_TRY(lease.own_, AlignedBuffer::allocate(bytes));
    data = lease.own_.as<float>().data();
    ++stats_.fallbacks;
    stats_.fallback_bytes += static_cast<int64_t>(bytes);
  }
  lease.pool_ = this;
  lease.is_output_ = is_output;
  lease.view_ = {data, rows, cols};
  ++stats_.takes;
  const auto count = [&](int& out, int& most_out, int64_t& most_floats) {
    most_out = std::max(most_out, ++out);
    most_floats = std::max(most_floats, rows * cols);
  };
  if (is_output) {
    count(stats_.outputs_out, stats_.most_outputs_out, stats_.most_output_floats);
  } else {
    count(stats_.middles_out, stats_.most_middles_out, stats_.most_middle_floats);
  }
  return lease;
}

int64_t LoRAMemoryPool::size_bytes() const {
  int64_t total = 0;
  for (const Buffers* buffers : {&middles_, &outputs_}) {
    for (const auto& buffer : buffers->all) total += static_cast<int64_t>(buffer.size_bytes());
  }
  return total;
}

}  // namespace choral::lora
