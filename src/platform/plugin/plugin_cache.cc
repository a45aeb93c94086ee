// Of a PluginSession: whether the key-value cache is the device's, and what the device is told of it.
#include <algorithm>
#include <bit>

#include "platform/plugin/plugin_host.h"
#include "platform/plugin/plugin_session.h"

namespace choral::platform {
namespace {

// Block tables are placed by powers of two, so that a sequence's next block moves nothing that lies behind them: a device that
// remembers its operators by their arguments sees the same ones again.
constexpr size_t kFewestBlockIds = 64;

}  // namespace

// The cache's order is the device's own, so its operators come together.
void PluginSession::serve_kv_in_pairs(const PlatformConfig& config) {
  if (config.attention_backend == "host") return leave_kv_to_host("the attention backend is the host's");
  const auto dtype = parse_dtype(config.kv_cache_dtype);
  if (dtype.ok() && *dtype == DType::kI8) return leave_kv_to_host("an int8 KV cache is the host's");
  kv_on_device_ = serves(kOpId<ops::WriteKv>) && serves(kOpId<ops::PagedAttention>);
  if (!kv_on_device_) leave_kv_to_host("the host keeps the KV cache");
}

void PluginSession::leave_kv_to_host(const std::string& why) {
  kv_on_device_ = false;
  AllOps::for_each([&]<class D>(D) {
    if constexpr (D::kOnCache) {
      auto& entry = ops_.get<D>();
      if (serves(kOpId<D>)) withdraw(kOpId<D>, OpSet::kTable, why);
      const std::string reason = D::kFused ? why : entry.reason;
      const auto& host = staged_cpu_ops().get<D>();
      entry.serve(host.run, host.provider, reason);
    }
  });
}

Result<Tensor> PluginSession::allocate_kv(DType dtype, Shape shape) {
  return kv_on_device_ ? allocate(dtype, shape) : Tensor::allocate(dtype, shape);
}

SequenceBatch PluginSession::place_sequences(std::span<const kernels::AttentionSequence> sequences) {
  SequenceBatch batch{.host = sequences};
  if (!kv_on_device_) return batch;
  size_t block_ids = 0;
  for (const auto& s : sequences) block_ids += s.block_table.size();
  const Arena::Mark mark(scratch_);
  const auto flat = scratch_.make<choral_sequence>(sequences.size());
  const auto ids = scratch_.make<int32_t>(std::bit_ceil(std::max(block_ids, kFewestBlockIds)));
  int32_t next = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const auto& s = sequences[i];
    flat[i] = {static_cast<int32_t>(s.query_begin), static_cast<int32_t>(s.query_count), static_cast<int32_t>(s.context_tokens),
               next};
    std::copy(s.block_table.begin(), s.block_table.end(), ids.begin() + next);
    next += static_cast<int32_t>(s.block_table.size());
  }
  std::fill(ids.begin() + next, ids.end(), -1);
  const auto place = [&](auto host) {
    using T = typename decltype(host)::element_type;
    T* device = memory_.make<T>(host.size()).data();
    const auto bytes = static_cast<int64_t>(host.size_bytes());
    if (bytes > 0) copy(CopyKind::kToDevice, device, bytes, host.data(), bytes, bytes, 1);
    return device;
  };
  batch.on_device = place(flat);
  batch.block_ids_on_device = place(ids);
  batch.block_id_count = std::ssize(ids);
  return batch;
}

// Its operators are called for no rows, which is fine, unless they refuse the cache.
void PluginSession::expect_cache(const CacheHeads& heads) {
  if (!kv_on_device_) return;
  const int64_t key_width = heads.kv_heads * heads.key_dim, value_width = heads.kv_heads * heads.value_dim;
  ops::KvCacheView cache{.dtype = heads.dtype,
                         .num_blocks = 1,
                         .kv_heads = heads.kv_heads,
                         .head_dim = heads.key_dim,
                         .v_head_dim = heads.value_dim};
  const int64_t stride = heads.kv_heads * kernels::kv_value_stride(heads.value_dim);
  auto keys = allocate(heads.dtype, {1, key_width * kernels::kKvBlockTokens});
  auto values = allocate(heads.dtype, {1, heads.values_in_keys ? 0 : stride * kernels::kKvBlockTokens});
  if (!keys.ok() || !values.ok()) return leave_kv_to_host("no memory to try it");
  cache.keys = keys->data();
  if (!heads.values_in_keys) cache.values = values->data();
  const ops::In k{nullptr, 0, key_width}, v{nullptr, 0, heads.values_in_keys ? 0 : value_width};
  const auto writes = ops::WriteKv::oot_arguments(cache, k, v, {});
  const ops::AttentionParams params{
      .heads = heads.kv_heads, .kv_heads = heads.kv_heads, .head_dim = heads.key_dim, .scale = 1.0F};
  const auto attends = ops::PagedAttention::oot_arguments(params, k, cache, {}, {}, {nullptr, 0, value_width});
  trying_ = true;
  must_call(kOpId<ops::WriteKv>, &writes);
  if (refusal_.ok()) must_call(kOpId<ops::PagedAttention>, &attends);
  trying_ = false;
  if (const Status refused = take_refusal(); !refused.ok()) leave_kv_to_host(refused.message());
}

}  // namespace choral::platform
