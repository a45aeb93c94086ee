// For those who measure steps on a device. Engine thread.
#pragma once

#include <optional>

#include "base/status.h"
#include "kernels/machine_peaks.h"
#include "platform/context.h"

namespace choral::platform {

// Of what computes here, the CPU with the context's threads or the device; nothing else may run meanwhile. unsupported: the
// device states none.
Result<kernels::MachinePeaks> measure_peaks(const Context& ctx);

// How long the host has waited for the device since the session was opened; nothing where the host computes itself.
std::optional<double> waited_s(const Session& session);

// Whether an operator of the device returns only when it is done, so that OpProfile sees its time, or as soon as it is queued.
void finish_each_operator(Session& session, bool finish);

}  // namespace choral::platform
