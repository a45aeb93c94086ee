#include <fmt/ranges.h>

#include "io/gguf_names.h"
#include "kernels/quant/stored_types.h"
#include "models/registry.h"
#include "quant/format_names.h"
#include "quant/quant_config.h"
#include "tools/doctor.h"

namespace choral::tools {

void list_what_is_served(DoctorReport& report) {
  std::vector<std::string> models;
  for (const auto& architecture : models::known_architectures()) {
    const auto gguf = io::gguf_architecture_of(architecture);
    models.push_back(gguf ? fmt::format("{} (GGUF: {})", architecture, gguf->name) : architecture);
  }
  report.fine("models", fmt::format("{}", fmt::join(models, ", ")));
  std::vector<std::string_view> blocks;
  for (const DType type : kernels::stored_types()) {
    if (facts(type).is_block) blocks.push_back(dtype_name(type));
  }
  report.fine("forms", fmt::format("float32, float16, bfloat16; GGUF's {}; checkpoints of {}; with --quantization {}",
                                   fmt::join(blocks, ", "), fmt::join(quant::checkpoint_format_names(), ", "),
                                   fmt::join(quant::in_flight_names(), ", ")));
}

}  // namespace choral::tools
