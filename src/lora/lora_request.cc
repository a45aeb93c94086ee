#include "lora/lora_request.h"

#include <utility>

#include "base/log.h"
#include "base/printable.h"
#include "lora/problem_list.h"

namespace choral::lora {

Result<LoRARequest> LoRARequest::make(LoRARequest fields) {
  if (!fields.lora_local_path.empty()) {
    if (!fields.lora_path.empty() && fields.lora_path != fields.lora_local_path) {
      return invalid_argument(
          "adapter '{}' has both lora_path and the older lora_local_path, and they differ; give lora_path only",
          printable(fields.lora_name));
    }
    CHORAL_LOG(kWarn, "adapter '{}': lora_local_path is deprecated; write lora_path", printable(fields.lora_name));
    fields.lora_path = std::exchange(fields.lora_local_path, {});
  }
  CHORAL_RETURN_IF_ERROR(fields.validate());
  return fields;
}

Status LoRARequest::validate() const {
  ProblemList problems;
  if (lora_name.empty()) problems.add(invalid_argument("lora_name is empty; it is what clients call the adapter"));
  if (lora_int_id < 1) {
    problems.add(invalid_argument("lora_int_id is {}; it must be 1 or more, because 0 is the base model", lora_int_id));
  }
  if (lora_path.empty()) problems.add(invalid_argument("lora_path is empty; it names the adapter's directory"));
  if (lora_path.find('\0') != std::string::npos) problems.add(invalid_argument("lora_path has a zero byte"));
  if (long_lora_max_len && *long_lora_max_len < 1) {
    problems.add(invalid_argument("long_lora_max_len is {}; it is a number of tokens", *long_lora_max_len));
  }
  return problems.to_status(fmt::format("adapter '{}'", printable(lora_name)));
}

}  // namespace choral::lora
