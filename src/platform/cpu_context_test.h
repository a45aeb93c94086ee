// The CPU's session with threads of its own, for tests.
#pragma once

#include "platform/platform.h"

namespace choral::platform::testing {

class CpuContext {
 public:
  explicit CpuContext(int threads = 2)
      : pool_(threads), session_(*cpu_platform().open(pool_, {})), ctx_(*session_, pool_, cpu_level()) {}

  Session& session() { return *session_; }
  Context& operator*() { return ctx_; }

 private:
  ThreadPool pool_;
  std::unique_ptr<Session> session_;
  Context ctx_;
};

}  // namespace choral::platform::testing
