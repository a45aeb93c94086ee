#include "kernels/roofline.h"
#include "platform/device_timing.h"
#include "platform/plugin/plugin_session.h"

namespace choral::platform {

Result<kernels::MachinePeaks> measure_peaks(const Context& ctx) {
  if (auto* plugin = dynamic_cast<PluginSession*>(&ctx.session)) return plugin->measure_peaks();
  return kernels::measure_peaks(ctx.kernel);
}

std::optional<double> waited_s(const Session& session) {
  const auto* plugin = dynamic_cast<const PluginSession*>(&session);
  return plugin == nullptr ? std::nullopt : std::optional(plugin->waited_s());
}

void finish_each_operator(Session& session, bool finish) {
  if (auto* plugin = dynamic_cast<PluginSession*>(&session)) plugin->finish_each_operator(finish);
}

}  // namespace choral::platform
