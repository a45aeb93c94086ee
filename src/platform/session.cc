#include "platform/session.h"

#include "platform/host_view.h"
#include "platform/platform.h"

namespace choral::platform {

Context::Context(Session& open_session, ThreadPool& pool, CpuLevel level)
    : session(open_session),
      ops(open_session.ops()),
      memory(open_session.memory()),
      kernel{pool, level, open_session.scratch()} {}

bool Session::on_wait(std::function<void()>) { return false; }

bool Session::reach_memory(bool) { return host_reads(*this); }

void Session::fail(Status status) { CHORAL_CHECK(status.ok(), status.message()); }

bool host_reads(const Session& session) { return session.platform().device().host_accessible; }

Status KeptVector::keep(Session& session) {
  on_device_ = host_;
  if (host_reads(session) || host_.empty()) return {};
  CHORAL_TRY(copy_, session.keep(host_));
  on_device_ = std::as_const(copy_).as<float>();
  return {};
}

}  // namespace choral::platform
