#include "base/thread.h"

#include <new>
#include <system_error>

namespace choral {

Result<std::thread> start_thread(std::string_view what, std::function<void()> body) {
  constexpr std::string_view kRemedy =
      "give fewer --threads, or raise the limits of processes and threads (ulimit -u, pids.max) and of memory (ulimit -v)";
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return resource_exhausted("cannot start {}: {}; {}", what, error.code().message(), kRemedy);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("cannot start {}: no memory for it; {}", what, kRemedy);
  }
}

}  // namespace choral
