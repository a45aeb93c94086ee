// Tensors of a file that torch.save wrote (adapter_model.bin): a zip archive with a pickle that names storages and says how
// tensors lie in them. A pickle is a program; this reader knows only the instructions a dictionary of tensors needs and the few
// names torch uses in it, builds plain values, and refuses every other name by that name. Nothing is imported, called or
// executed. Bounded in bytes, values and entries; there is no recursion. Pure; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "io/zip_directory.h"
#include "tensor/view.h"

namespace choral::io {

struct TorchLimits {
  ZipLimits zip;
  uint64_t max_pickle_bytes = 64 << 20;
  uint64_t max_values = 1'000'000;  // a tensor takes about twenty
  uint64_t max_tensors = 200'000;
  uint64_t max_name_bytes = 1024;
  uint64_t max_copied_bytes = uint64_t{4} << 30;  // for tensors whose elements do not lie in a row
  bool shapes_only = false;  // such tensors are not copied: their views have type and shape, and bytes that may not be read
};

struct TorchTensor {
  std::string name;
  TensorView view;                    // may stand at any address
  std::shared_ptr<const void> owner;  // keeps the view's bytes
};

// Of the bytes of a file, kept alive by `owner`; `file_name` is for messages. Sorted by name. A tensor that is empty or has more
// than four dimensions is kUnsupported; so is the format of torch before 1.6.
Result<std::vector<TorchTensor>> parse_torch_tensors(std::span<const std::byte> file, std::string_view file_name,
                                                     std::shared_ptr<const void> owner, const TorchLimits& limits = {});

}  // namespace choral::io
