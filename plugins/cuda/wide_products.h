// What multiplies many rows of x: wgmma where the device has it, mma.sync elsewhere. A row's bits may not depend on how many rows
// are multiplied with it, and few rows are mma.sync's; that both round alike no manual says. So the device is asked, once, before
// it packs a weight.
#pragma once

#include "choral/plugin.h"

namespace choral_cuda {

// Random products by both, compared to the bit: device->has_wgmma from here on, and a line in the log that says so. An error is
// one of the device's. One thread at a time.
choral_status* choose_wide_products(choral_device* device, choral_stream* stream);

}  // namespace choral_cuda
