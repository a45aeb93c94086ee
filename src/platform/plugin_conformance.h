// A plug-in's operators held to the host's plain loops, on small fixed inputs, when the device starts. It takes a few
// milliseconds, and catches what no version number does: an operator that means something else.
#pragma once

#include <string>

#include "platform/plugin_session.h"

namespace choral::platform {

// Fine, or what differs, how much and where. Operators without a vector of their own are fine: write_kv is judged by what
// paged_attention reads, and what takes a weight by a small one.
Status check_conformance(const Context& ctx, PluginOp op, const OpTable& table);

}  // namespace choral::platform
