// From the op table's calls to the plug-in's functions. install_plugin_op() puts the form that does so for one operator into a
// table, and the name of who serves it beside it. That form serves the call itself once the session's call() says no, so that
// withdraw_plugin_op() only tells who serves it now.
#pragma once

#include "platform/plugin/plugin_session.h"

namespace choral::platform {

void install_plugin_op(OpTable& table, OpId op, OpSet set, std::string_view provider, std::string_view why);
void withdraw_plugin_op(OpTable& table, OpId op, std::string_view why);

}  // namespace choral::platform
