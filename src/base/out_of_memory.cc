#include "base/out_of_memory.h"

#include "base/free_memory.h"

namespace choral {

Status out_of_memory(std::string_view doing) {
  return resource_exhausted("{}: the system gives no more memory: {}", doing, memory_refusal_text());
}

}  // namespace choral
