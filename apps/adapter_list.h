// `choral adapter list`: the adapters that flags lead to, as their own files describe them; with a model also which of them fit
// it. No value of a tensor is read.
#pragma once

#include "adapter_flags.h"

namespace choral::apps {

// Adapters that cannot be read, or do not fit, are in the list with the reason; that is no error of the list.
Status list_adapters(const AdapterFlags& flags, EngineOptions options, bool json);

}  // namespace choral::apps
