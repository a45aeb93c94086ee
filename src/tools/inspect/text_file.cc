#include "tools/text_file.h"

#include "io/mapped_file.h"

namespace choral::tools {

Result<std::string> read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
  return io::read_whole_file(path, max_bytes);
}

}  // namespace choral::tools
