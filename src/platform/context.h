// What a layer is given in every call: the open device, its operators, and the kernels' context of the host.
// One per engine thread. Matrices of the step live in the device's memory; what only the host reads lives in kernel.scratch. On
// the CPU both are one arena.
#pragma once

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::platform {

class Collective;
class OpProfile;
class Session;
struct OpTable;

struct Context {
  Context(Session& open_session, ThreadPool& pool, CpuLevel level);
  // The same device, called through another table.
  Context(const Context& other, const OpTable& table)
      : session(other.session), ops(table), memory(other.memory), kernel(other.kernel), ranks(other.ranks) {}

  Session& session;
  const OpTable& ops;
  Arena& memory;  // of the step, on the device
  kernels::Context kernel;
  Collective* ranks = nullptr;   // null: the model is not divided
  OpProfile* profile = nullptr;  // when set, every operator call is timed into it

  // A matrix of the step on the device, contents undefined. [rows, cols]
  MatrixView<float> make_matrix(int64_t rows, int64_t cols) const { return {memory.make<float>(rows * cols).data(), rows, cols}; }
};

// Gives back, at the end of its scope, what was made of the step's memory and of the host's scratch since it began.
class StepMark {
 public:
  explicit StepMark(const Context& ctx) : memory_(ctx.memory), scratch_(ctx.kernel.scratch) {}

 private:
  Arena::Mark memory_, scratch_;
};

}  // namespace choral::platform
