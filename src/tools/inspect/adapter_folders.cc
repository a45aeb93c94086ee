#include "tools/adapter_folders.h"

#include "io/hub_cache.h"
#include "lora/peft/adapter_file.h"
#include "lora/peft/peft_helper.h"

namespace choral::tools {

Result<std::string> find_adapter(std::string_view path_or_name) {
  CHORAL_TRY(const auto path, io::resolve_adapter(path_or_name));
  return path.string();
}

Result<AdapterSummary> summarise_adapter(const std::string& path) {
  CHORAL_TRY(const auto peft, lora::PEFTHelper::from_local_dir(path));
  AdapterSummary summary{.kind = peft.kind(), .rank = 0, .file_bytes = 0, .base = peft.base_model_name_or_path};
  if (peft.ranks_known) summary.rank = peft.largest_rank();
  CHORAL_TRY(const auto file, lora::read_adapter_shapes(path));
  summary.file_bytes = file.size_bytes;
  if (!peft.problems().empty()) return peft.problems().to_status("not supported");
  return summary;
}

}  // namespace choral::tools
