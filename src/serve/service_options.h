// What the routes are told of a server's options. Pure.
#pragma once

#include "serve/server.h"
#include "serve/service/service.h"

namespace choral::serve {

Result<ServiceOptions> service_options(const ServerOptions& options);

}  // namespace choral::serve
