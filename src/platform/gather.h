// The gathers of a divided model's layers: Collective's, of matrices that are on the device. Where the host does not read its
// memory, what a rank made comes to the host and what the others made goes to the device.
#pragma once

#include "platform/collective.h"
#include "platform/context.h"

namespace choral::platform {

void gather_columns(const Context& ctx, MatrixView<float> y, std::span<const int64_t> begins);
void gather_rows(const Context& ctx, MatrixView<float> y, Collective::OwnerOf owner);

}  // namespace choral::platform
