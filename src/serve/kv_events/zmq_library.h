// libzmq, opened when events are first published: most servers publish none. What is used of its C interface, which has been the
// same since 3.2, is declared here, so that a build needs nothing of it. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace choral::serve {

struct ZmqLibrary {
  static constexpr int kPub = 1, kRouter = 6;                                            // kinds of sockets
  static constexpr int kReceiveMore = 13, kLinger = 17, kSendLimit = 23, kAddress = 32;  // options
  static constexpr int kNoWait = 1, kMore = 2;                                           // flags

  // The one of this process. An error says how to get it.
  static Result<const ZmqLibrary*> open();
  static Result<ZmqLibrary> load(const char* file);

  void* (*context_new)();
  int (*context_term)(void* context);
  void* (*socket)(void* context, int kind);
  int (*close)(void* socket);
  int (*set)(void* socket, int option, const void* value, size_t size);
  int (*get)(void* socket, int option, void* value, size_t* size);
  int (*bind)(void* socket, const char* address);
  int (*connect)(void* socket, const char* address);
  int (*send)(void* socket, const void* data, size_t size, int flags);
  int (*receive)(void* socket, void* data, size_t size, int flags);
  int (*error)();
  const char* (*error_text)(int error);

  std::string why() const { return error_text(error()); }
};

}  // namespace choral::serve
