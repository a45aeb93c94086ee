// Weights: packed by the host's threads straight into pinned memory, and on their way to the device while the next part is
// packed.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "device.h"
#include "structs.h"
#include "wide_products.h"

namespace choral_cuda {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 31;

// Null, or what is wrong with the description itself, whatever the kernels take.
const char* misfit(const choral_weight& w) {
  if (w.cols <= 0 || w.cols > kMostRows) return "a matrix has 1 to 2^31 columns";
  if (w.part_count <= 0 || w.parts == nullptr) return "a matrix has parts";
  const int64_t row_bytes = stored_row_bytes(w.stored_dtype, w.cols);
  int64_t rows = 0;
  for (int64_t i = 0; i < w.part_count; ++i) {
    const choral_weight_part& part = w.parts[i];
    if (part.rows < 0 || part.rows > kMostRows - rows) return "a matrix has at most 2^31 rows";
    if (part.rows > 0 && part.data == nullptr) return "a part has no data";
    if (part.row_bytes < row_bytes) return "stored rows are shorter than their columns";
    if (part.order != nullptr && std::any_of(part.order, part.order + part.rows, [](int32_t row) { return row < 0; })) {
      return "an order names a negative row";
    }
    rows += part.rows;
  }
  if (rows == 0) return "a matrix has rows";
  if (w.scale_count == 0) return nullptr;
  const int64_t groups = w.group_size <= 0 ? 1 : (w.cols + w.group_size - 1) / w.group_size;
  if (w.group_size < 0 || w.scales == nullptr || w.scale_count != rows * groups) return "there is a scale for each row and group";
  if (w.zero_count != 0 && (w.zeros == nullptr || w.zero_count != w.scale_count)) return "zeros stand beside scales";
  if (w.k_order_count == 0) return nullptr;
  const auto beyond = [&](int32_t k) { return k < 0 || k >= w.cols; };
  if (w.k_order == nullptr || w.k_order_count != w.cols || std::any_of(w.k_order, w.k_order + w.cols, beyond)) {
    return "the order of columns names each";
  }
  return nullptr;
}

struct PackJob {
  const choral_weight& source;
  const PackPlan& plan;
  int64_t first;  // tile
  unsigned char* to;
};

void pack_some(void* context, int64_t begin, int64_t end) {
  const auto& job = *static_cast<const PackJob*>(context);
  pack_tiles(job.source, job.plan, job.first + begin, job.first + end, job.to + begin * job.plan.weight.tile_bytes);
}

// `bytes` of a weight, made by fill(memory) -> choral_status*.
template <class Fill>
choral_status* upload(choral_device* device, choral_stream* stream, void* to, int64_t bytes, Fill&& fill) {
  const auto check = [&](cudaError_t error) { return device->check(error, "prepack: upload"); };
  if (bytes > static_cast<int64_t>(Staging::kChunkBytes)) {  // one record of very many columns
    const std::unique_ptr<unsigned char[]> made(new unsigned char[static_cast<size_t>(bytes)]);
    CUDA_TRY(fill(made.get()));
    const choral_copy whole{CHORAL_HEADER(choral_copy), CHORAL_HOST_TO_DEVICE, 0, to, bytes, made.get(), bytes, bytes, 1};
    return copy(device, stream, &whole);
  }
  void* staged = nullptr;
  CUDA_TRY(check(stream->staging.take(static_cast<size_t>(bytes), &staged)));
  CUDA_TRY(fill(static_cast<unsigned char*>(staged)));
  return check(cudaMemcpyAsync(to, staged, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream->handle));
}

choral_status* pack(choral_device* device, choral_stream* stream, const choral_weight& source, const choral_packed& packed) {
  const PackPlan& plan = packed.plan;
  auto* image = static_cast<unsigned char*>(packed.image);
  const int64_t tile_bytes = plan.weight.tile_bytes;
  const int64_t at_once = std::max<int64_t>(1, static_cast<int64_t>(Staging::kChunkBytes) / tile_bytes);
  for (int64_t tile = 0; tile < plan.row_tiles; tile += at_once) {
    const int64_t count = std::min(at_once, plan.row_tiles - tile);
    CUDA_TRY(upload(device, stream, image + tile * tile_bytes, count * tile_bytes, [&](unsigned char* to) {
      PackJob job{source, plan, tile, to};
      return host->parallel_for(device->pool, count, 1, pack_some, &job);
    }));
  }
  const int64_t tail = plan.image_bytes - plan.tail_offset;
  if (tail > 0) {
    CUDA_TRY(upload(device, stream, image + plan.tail_offset, tail, [&](unsigned char* to) -> choral_status* {
      pack_tail(plan, to);
      return nullptr;
    }));
  }
  const std::lock_guard held(device->reading);
  return device->check(cudaEventRecord(device->packed, stream->handle), "prepack");
}

void describe(const choral_device& device, const PackPlan& plan, choral_packed_facts* answer) {
  if (answer == nullptr) return;
  const bool wide = device.has_wgmma && plan.weight.format != Format::kF32;
  choral_packed_facts facts{};
  facts.size_bytes = plan.image_bytes;
  std::snprintf(facts.format, sizeof facts.format, "%s", plan.format.c_str());
  std::snprintf(facts.kernel, sizeof facts.kernel, "%s%s", plan.kernel.c_str(), wide ? "; many rows by wgmma m64n128" : "");
  write(answer, facts);
}

// The record that holds the row is in device->record afterwards. Under the lock.
choral_status* fetch_record(choral_device* device, const choral_packed* packed, int64_t index) {
  if (device->record_of == packed && device->record_index == index) return nullptr;
  const auto check = [&](cudaError_t error) { return device->check(error, "read_row"); };
  const auto bytes = static_cast<size_t>(packed->plan.weight.tile_bytes);
  device->record_of = nullptr;
  if (bytes > device->record_bytes) {
    if (device->record != nullptr) CUDA_TRY(check(cudaFreeHost(device->record)));
    device->record = nullptr;
    device->record_bytes = 0;
    CUDA_TRY(check(cudaHostAlloc(&device->record, bytes, cudaHostAllocDefault)));
    device->record_bytes = bytes;
  }
  const auto* from = static_cast<const unsigned char*>(packed->image) + index * static_cast<int64_t>(bytes);
  CUDA_TRY(check(cudaStreamWaitEvent(device->reads, device->packed, 0)));
  CUDA_TRY(check(cudaMemcpyAsync(device->record, from, bytes, cudaMemcpyDeviceToHost, device->reads)));
  CUDA_TRY(check(cudaStreamSynchronize(device->reads)));
  device->record_of = packed;
  device->record_index = index;
  return nullptr;
}

}  // namespace

choral_status* prepack(choral_device* device, choral_stream* stream, const choral_weight* given, choral_packed** result,
                       choral_packed_facts* facts) {
  return without_exceptions("prepack", [&]() -> choral_status* {
    CUDA_TRY(device->enter("prepack"));
    device->end_list(stream);
    const auto source = read<choral_weight>(given);
    auto packed = std::make_unique<choral_packed>();
    if (stored_row_bytes(source.stored_dtype, std::max<int64_t>(source.cols, 1)) == 0) {
      return error(CHORAL_UNSUPPORTED, "elements of type %d are not known", source.stored_dtype);
    }
    if (const char* wrong = misfit(source)) return error(CHORAL_INVALID_ARGUMENT, "prepack: %s", wrong);
    if (const char* why_not = plan_packing(source, &packed->plan)) return error(CHORAL_UNSUPPORTED, "%s", why_not);
    CUDA_TRY(choose_wide_products(device, stream));
    CUDA_TRY(device->allocate(static_cast<uint64_t>(packed->plan.image_bytes), &packed->image));
    packed->weight = packed->plan.placed(packed->image);
    if (choral_status* failed = pack(device, stream, source, *packed)) {
      device->release(packed->image);
      return failed;
    }
    describe(*device, packed->plan, facts);
    *result = packed.release();
    return nullptr;
  });
}

void release_packed(choral_device* device, choral_packed* packed) {
  if (packed == nullptr) return;
  {
    const std::lock_guard held(device->reading);
    if (device->record_of == packed) device->record_of = nullptr;
  }
  device->release(packed->image);
  delete packed;
}

choral_status* read_row(choral_device* device, const choral_packed* packed, int64_t row, float* out) {
  if (row < 0 || row >= packed->weight.rows) {
    return error(CHORAL_INVALID_ARGUMENT, "read_row: row %lld of %lld", static_cast<long long>(row),
                 static_cast<long long>(packed->weight.rows));
  }
  return without_exceptions("read_row", [&]() -> choral_status* {
    CUDA_TRY(device->enter("read_row"));
    const std::lock_guard held(device->reading);
    CUDA_TRY(fetch_record(device, packed, row / kTileRows));
    unpack_row(packed->plan, static_cast<const unsigned char*>(device->record), row, out);
    return nullptr;
  });
}

}  // namespace choral_cuda
