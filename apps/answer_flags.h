// The flags that say how bodies of requests are read and answers written, for whatever answers as the server does. Main thread.
#pragma once

#include "serve/server.h"

namespace CLI {
class App;
}

namespace choral::apps {

void add_answer_flags(CLI::App& app, serve::ServerOptions& options);

}  // namespace choral::apps
