// The descriptions that quantised checkpoints carry, one file each: which scheme and storage every layer has.
#pragma once

#include "quant/quant_config.h"

namespace choral::quant {

// config.json's quantization_config of that quant_method.
Result<std::unique_ptr<QuantConfig>> read_compressed_tensors(const io::ConfigMap& quantization_config);
Result<std::unique_ptr<QuantConfig>> read_awq(const io::ConfigMap& quantization_config);
Result<std::unique_ptr<QuantConfig>> read_gptq(const io::ConfigMap& quantization_config);
Result<std::unique_ptr<QuantConfig>> read_fp8(const io::ConfigMap& quantization_config);
Result<std::unique_ptr<QuantConfig>> read_mxfp4(const io::ConfigMap& quantization_config);
// quant_model_description.json.
Result<std::unique_ptr<QuantConfig>> read_modelslim(const io::ConfigMap& description);

// "group_size" as a format's integers have it: 0 for one group a channel (-1 or 0 in the file), else a multiple of 32.
Result<int64_t> checked_group_size(const io::ConfigMap& config, int64_t stored);
// What is said when `what` stands where only `known` are read.
Status unread_format(std::string_view where, std::string_view what, std::string_view known);

}  // namespace choral::quant
