#include "serve/service/adapter_header.h"

#include "base/status.h"

namespace choral::serve {

void add_adapter_header(std::string_view name, int generation, std::string_view digest, Headers& headers) {
  headers.add("X-Choral-Adapter", fmt::format("{}; generation={}; digest={}", name, generation, digest));
}

}  // namespace choral::serve
