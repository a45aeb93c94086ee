// What a layer is given in every call: the platform it runs on, that platform's operators, and the kernels' context.
// One per engine thread. `arena()` is the step's scratch: memory of the platform's device, freed at the step's end.
#pragma once

#include "kernels/context.h"
#include "tensor/view.h"

namespace choral::platform {

class OpProfile;
class Platform;
struct OpTable;

struct Context {
  const Platform& platform;
  const OpTable& ops;
  kernels::Context kernel;
  OpProfile* profile = nullptr;  // when set, every operator call is timed into it

  Arena& arena() const { return kernel.scratch; }
  // A matrix of the step, contents undefined. [rows, cols]
  MatrixView<float> make_matrix(int64_t rows, int64_t cols) const {
    return {arena().make<float>(static_cast<size_t>(rows * cols)).data(), rows, cols};
  }
};

}  // namespace choral::platform
