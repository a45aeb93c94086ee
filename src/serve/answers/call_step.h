// What a byte of a call's arguments came to, for each of the ways in which they are written. Pure.
#pragma once

namespace choral::serve {

enum class CallStep { kMore, kFailed, kDone };

}  // namespace choral::serve
