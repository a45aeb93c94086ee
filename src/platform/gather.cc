#include "platform/gather.h"

#include "platform/host_view.h"

namespace choral::platform {

void gather_columns(const Context& ctx, MatrixView<float> y, std::span<const int64_t> begins) {
  Collective& ranks = *ctx.ranks;
  if (y.rows == 0 || ctx.session.reach_memory(true)) return ranks.gather_columns(ctx.kernel, y, begins);
  const Arena::Mark mark(ctx.kernel.scratch);
  const MatrixView<float> host(ctx.kernel.scratch.make<float>(y.rows * y.cols).data(), y.rows, y.cols);
  const auto rank = static_cast<size_t>(ranks.rank());
  const int64_t begin = begins[rank], end = begins[rank + 1];
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  ctx.session.copy(CopyKind::kToHost, host.data + begin, host.stride * kFloat, y.data + begin, y.stride * kFloat,
                   (end - begin) * kFloat, y.rows);
  ranks.gather_columns(ctx.kernel, host, begins);
  copy_to_device(ctx, host.sub_cols(0, begin), y.sub_cols(0, begin));
  copy_to_device(ctx, host.sub_cols(end, y.cols - end), y.sub_cols(end, y.cols - end));
}

void gather_rows(const Context& ctx, MatrixView<float> y, Collective::OwnerOf owner) {
  const Arena::Mark mark(ctx.kernel.scratch);
  const HostView<float> host(ctx, y, Access::kReadWrite);
  ctx.ranks->gather_rows(ctx.kernel, *host, owner);
}

}  // namespace choral::platform
