// Rows between the host and the device. Those of the host pass through pinned memory in pieces, so that a copy to the device is
// done with host memory without waiting for the device, and a large one to the host is emptied while the next piece arrives.
#include <algorithm>
#include <climits>
#include <cstring>

#include "device.h"
#include "structs.h"

namespace choral_cuda {
namespace {

// Whole rows, or a part of one that is longer than a piece.
struct Piece {
  int64_t row, rows, column, row_bytes;
  size_t bytes() const { return static_cast<size_t>(rows * row_bytes); }
};

// Of a copy, in order.
class Pieces {
 public:
  explicit Pieces(const choral_copy& copy) : copy_(copy) {}

  bool next(Piece* piece) {
    constexpr auto kMost = static_cast<int64_t>(Staging::kChunkBytes);
    if (row_ == copy_.rows) return false;
    if (copy_.row_bytes > kMost) {
      *piece = {row_, 1, column_, std::min(kMost, copy_.row_bytes - column_)};
      column_ += piece->row_bytes;
      if (column_ == copy_.row_bytes) column_ = 0, ++row_;
    } else {
      *piece = {row_, std::min(kMost / copy_.row_bytes, copy_.rows - row_), 0, copy_.row_bytes};
      row_ += piece->rows;
    }
    return true;
  }

 private:
  const choral_copy& copy_;
  int64_t row_ = 0, column_ = 0;
};

template <class Byte>
Byte* place(Byte* base, int64_t pitch, const Piece& piece) {
  return base + piece.row * pitch + piece.column;
}

void copy_rows(char* to, int64_t to_pitch, const char* from, int64_t from_pitch, const Piece& piece) {
  if (to_pitch == piece.row_bytes && from_pitch == piece.row_bytes) {
    std::memcpy(to, from, piece.bytes());
    return;
  }
  for (int64_t row = 0; row < piece.rows; ++row) {
    std::memcpy(to + row * to_pitch, from + row * from_pitch, static_cast<size_t>(piece.row_bytes));
  }
}

// Rows that follow each other without a gap are copied as one.
cudaError_t queue_rows(void* to, int64_t to_pitch, const void* from, int64_t from_pitch, int64_t row_bytes, int64_t rows,
                       cudaMemcpyKind kind, cudaStream_t stream) {
  if (rows == 1 || (to_pitch == row_bytes && from_pitch == row_bytes)) {
    return cudaMemcpyAsync(to, from, static_cast<size_t>(row_bytes * rows), kind, stream);
  }
  return cudaMemcpy2DAsync(to, static_cast<size_t>(to_pitch), from, static_cast<size_t>(from_pitch),
                           static_cast<size_t>(row_bytes), static_cast<size_t>(rows), kind, stream);
}

cudaError_t to_device(choral_stream* stream, const choral_copy& copy) {
  const auto* from = static_cast<const char*>(copy.from);
  auto* to = static_cast<char*>(copy.to);
  Piece piece;
  for (Pieces pieces(copy); pieces.next(&piece);) {
    void* staged = nullptr;
    if (const cudaError_t failed = stream->staging.take(piece.bytes(), &staged)) return failed;
    copy_rows(static_cast<char*>(staged), piece.row_bytes, place(from, copy.from_pitch, piece), copy.from_pitch, piece);
    const cudaError_t queued = queue_rows(place(to, copy.to_pitch, piece), copy.to_pitch, staged, piece.row_bytes,
                                          piece.row_bytes, piece.rows, cudaMemcpyHostToDevice, stream->handle);
    if (queued != cudaSuccess) return queued;
  }
  return cudaSuccess;
}

// A piece on its way to the host.
struct Arriving {
  Piece piece;
  char* staged;
};

choral_status* to_host(choral_device* device, choral_stream* stream, const choral_copy& copy) {
  const auto* from = static_cast<const char*>(copy.from);
  auto* to = static_cast<char*>(copy.to);
  const auto check = [&](cudaError_t error) { return device->check(error, "copy to the host"); };
  const auto empty = [&](const Arriving& a) {
    copy_rows(place(to, copy.to_pitch, a.piece), copy.to_pitch, a.staged, a.piece.row_bytes, a.piece);
  };
  Pieces pieces(copy);
  Arriving next{}, before{};
  bool has_before = false;
  while (pieces.next(&next.piece)) {
    void* staged = nullptr;
    // Whoever takes a chunk of the ring waits until the stream has passed what was queued on it: with two pieces on their way,
    // the one before is complete when the one after is waited for.
    CUDA_TRY(check(stream->staging.take(next.piece.bytes(), &staged)));
    next.staged = static_cast<char*>(staged);
    if (has_before) CUDA_TRY(check(cudaEventRecord(stream->arrived, stream->handle)));
    CUDA_TRY(check(queue_rows(next.staged, next.piece.row_bytes, place(from, copy.from_pitch, next.piece), copy.from_pitch,
                              next.piece.row_bytes, next.piece.rows, cudaMemcpyDeviceToHost, stream->handle)));
    if (has_before) {
      CUDA_TRY(check(cudaEventSynchronize(stream->arrived)));
      empty(before);
    }
    before = next;
    has_before = true;
  }
  CUDA_TRY(stream_synchronize(device, stream));
  if (has_before) empty(before);
  return nullptr;
}

choral_status* refuse(const choral_stream* stream, const choral_copy& c) {
  const auto bad = [](const char* rule) { return error(CHORAL_INVALID_ARGUMENT, "copy: %s", rule); };
  if (stream == nullptr) return bad("it needs a stream");
  if (c.kind < CHORAL_HOST_TO_DEVICE || c.kind > CHORAL_DEVICE_TO_DEVICE) return bad("unknown kind");
  if (c.rows < 0 || c.row_bytes < 0) return bad("sizes are not negative");
  if (c.rows > 1 && (c.to_pitch < c.row_bytes || c.from_pitch < c.row_bytes)) return bad("rows overlap");
  if (c.row_bytes > 0 && c.rows > INT64_MAX / c.row_bytes) return bad("more bytes than there are");
  if (c.rows > 0 && c.row_bytes > 0 && (c.to == nullptr || c.from == nullptr)) return bad("no memory is given");
  return nullptr;
}

}  // namespace

choral_status* copy(choral_device* device, choral_stream* stream, const choral_copy* given) {
  const auto c = read<choral_copy>(given);
  CUDA_TRY(refuse(stream, c));
  CUDA_TRY(device->enter("copy"));
  device->end_list(stream);
  const bool empty = c.rows == 0 || c.row_bytes == 0;
  if (c.kind == CHORAL_DEVICE_TO_HOST) return empty ? stream_synchronize(device, stream) : to_host(device, stream, c);
  if (empty) return nullptr;
  if (c.kind == CHORAL_HOST_TO_DEVICE) return device->check(to_device(stream, c), "copy to the device");
  return device->check(
      queue_rows(c.to, c.to_pitch, c.from, c.from_pitch, c.row_bytes, c.rows, cudaMemcpyDeviceToDevice, stream->handle),
      "copy on the device");
}

}  // namespace choral_cuda
