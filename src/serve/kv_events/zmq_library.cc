#include "serve/kv_events/zmq_library.h"

#include <dlfcn.h>

#include "base/printable.h"

namespace choral::serve {
namespace {

template <class Pointer>
Status find_in_zmq(void* library, const char* name, Pointer& out) {
  out = reinterpret_cast<Pointer>(dlsym(library, name));
  return out != nullptr ? Status() : unsupported("libzmq has no {}: it is older than 3.2; install a newer one", name);
}

}  // namespace

Result<ZmqLibrary> ZmqLibrary::load(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // kept to the end
  if (library == nullptr) {
    return unavailable("--kv-events-config needs libzmq, which is not here ({}); install it (Debian: apt-get install libzmq5)",
                       printable(dlerror()));
  }
  ZmqLibrary zmq{};
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_ctx_new", zmq.context_new));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_ctx_term", zmq.context_term));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_socket", zmq.socket));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_close", zmq.close));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_setsockopt", zmq.set));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_getsockopt", zmq.get));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_bind", zmq.bind));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_connect", zmq.connect));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_send", zmq.send));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_recv", zmq.receive));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_errno", zmq.error));
  CHORAL_RETURN_IF_ERROR(find_in_zmq(library, "zmq_strerror", zmq.error_text));
  return zmq;
}

Result<const ZmqLibrary*> ZmqLibrary::open() {
  static const Result<ZmqLibrary> opened = load("libzmq.so.5");
  if (!opened.ok()) return opened.status();
  return &*opened;
}

}  // namespace choral::serve
