// What the plug-in's table is put together from (plugin.cc).
#pragma once

#include <cstdint>

#include "choral/plugin.h"

namespace choral_cuda {

inline constexpr char kWorkerName[] = "cuda";
extern const choral_worker_class kWorkers[1];

// ops.cc: every operator, the fused ones apart.
struct OpList {
  const choral_op* first;
  int64_t count;
};
OpList ops();
OpList fused_ops();

}  // namespace choral_cuda
