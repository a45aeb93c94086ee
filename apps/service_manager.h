// What a service manager is told of this process (systemd's Type=notify): a datagram to the socket that NOTIFY_SOCKET names.
// Nothing where no manager asked for it. Thread-safety: any thread.
#pragma once

#include <string>
#include <string_view>

namespace choral::apps {

class ServiceManager {
 public:
  // Takes NOTIFY_SOCKET out of the environment, so that no child speaks for this process. Call before there are threads.
  ServiceManager();

  void tell_ready() const { tell("READY=1\nSTATUS=serving"); }
  void tell_ending() const { tell("STOPPING=1\nSTATUS=answers in flight end"); }

 private:
  void tell(std::string_view message) const;

  std::string socket_;  // a path, or a name after '@'; empty: nobody asked
};

}  // namespace choral::apps
