// An adapter that lies somewhere on the server's disk, loaded for a client.
#pragma once

#include <string>
#include <string_view>

#include "serve/openai/adapter_calls.h"
#include "serve/service/service.h"

namespace choral::serve {

// The answer where a call says nothing of replacing, and there is one of that name.
HttpResponse already_loaded(const std::string& name);
// `param`: the field that the place comes from. Waits for the load.
HttpResponse load_from(Service& service, const LoadAdapterCall& call, const std::string& place, std::string_view param);

// The same of the call's own path, and the other way round.
HttpResponse load_from_path(Service& service, const LoadAdapterCall& call);
HttpResponse unload_named(Service& service, const AdapterNameCall& call);

}  // namespace choral::serve
