#include "serve/kv_events/zmq_library.h"

#include <dlfcn.h>

#include "base/opened_library.h"
#include "base/printable.h"

namespace choral::serve {

Result<ZmqLibrary> ZmqLibrary::load(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);  // kept to the end
  if (library == nullptr) {
    return unavailable("--kv-events-config needs libzmq, which is not here ({}); install it (Debian: apt-get install libzmq5)",
                       printable(dlerror()));
  }
  const OpenedLibrary opened{library, "libzmq", ": it is older than 3.2; install a newer one"};
  ZmqLibrary zmq{};
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_ctx_new", zmq.context_new));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_ctx_term", zmq.context_term));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_socket", zmq.socket));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_close", zmq.close));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_setsockopt", zmq.set));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_getsockopt", zmq.get));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_bind", zmq.bind));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_connect", zmq.connect));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_send", zmq.send));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_recv", zmq.receive));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_errno", zmq.error));
  CHORAL_RETURN_IF_ERROR(opened.find("zmq_strerror", zmq.error_text));
  return zmq;
}

Result<const ZmqLibrary*> ZmqLibrary::open() {
  static const Result<ZmqLibrary> opened = load("libzmq.so.5");
  if (!opened.ok()) return opened.status();
  return &*opened;
}

}  // namespace choral::serve
