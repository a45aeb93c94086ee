// Which adapter a request wants: a name, an id unique in the server, and where its files are. As in vLLM, requests with the same
// name are equal whatever their ids: clients say the name. LoRAModel::digest is the identity of *content*.
// A plain value; make() checks it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace choral::lora {

struct LoRARequest {
  std::string lora_name = {};
  int64_t lora_int_id = 0;                          // 1 and up; 0 is the base
  std::string lora_path = {};                       // a directory or a .gguf file
  std::string lora_local_path = {};                 // deprecated spelling of lora_path; read by make(), empty afterwards
  std::optional<int64_t> long_lora_max_len = {};    // tokens; the adapter was trained for this context
  std::optional<std::string> base_model_name = {};  // the base the adapter is meant for, as the client knows it

  // `fields`, checked: a name, a path, an id of 1 or more. All problems in one error.
  static Result<LoRARequest> make(LoRARequest fields);
  Status validate() const;

  bool operator==(const LoRARequest& other) const { return lora_name == other.lora_name; }
};

}  // namespace choral::lora

template <>
struct std::hash<choral::lora::LoRARequest> {
  size_t operator()(const choral::lora::LoRARequest& request) const { return std::hash<std::string>()(request.lora_name); }
};
