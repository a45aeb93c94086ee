#include "io/torch_pickle.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/checked_math.h"
#include "base/printable.h"
#include "io/pickle_machine.h"
#include "tensor/tensor.h"

namespace choral::io {
namespace {

using Kind = PickleValue::Kind;

std::optional<DType> storage_type(std::string_view global) {
  constexpr std::array<std::pair<std::string_view, DType>, 10> kTypes{{{"torch.FloatStorage", DType::kF32},
                                                                       {"torch.HalfStorage", DType::kF16},
                                                                       {"torch.BFloat16Storage", DType::kBF16},
                                                                       {"torch.DoubleStorage", DType::kF64},
                                                                       {"torch.LongStorage", DType::kI64},
                                                                       {"torch.IntStorage", DType::kI32},
                                                                       {"torch.ShortStorage", DType::kI16},
                                                                       {"torch.CharStorage", DType::kI8},
                                                                       {"torch.ByteStorage", DType::kU8},
                                                                       {"torch.BoolStorage", DType::kBool}}};
  for (const auto& [name, type] : kTypes) {
    if (name == global) return type;
  }
  return std::nullopt;
}

// The archive's folder, "adapter_model/", from the one entry "…/data.pkl".
Result<std::string> folder_of(const ZipDirectory& zip, std::string_view file) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, bytes] : zip.entries()) {
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size()) {
      return name.substr(0, name.size() - kPickle.size() + 1);
    }
  }
  return corrupt("{} is a zip archive, but torch.save did not write it: it has no data.pkl", file);
}

class TensorReader {
 public:
  TensorReader(const ZipDirectory& zip, std::string folder, std::string_view file, std::shared_ptr<const void> owner,
               const TorchLimits& limits)
      : zip_(zip), folder_(std::move(folder)), file_(file), owner_(std::move(owner)), limits_(limits) {}

  Result<TorchTensor> read(std::string name, const PickleMachine& machine, const PickleValue& tensor);

 private:
  Result<TorchTensor> copy(TorchTensor out, const std::byte* first, const PickleValue& tensor);

  const ZipDirectory& zip_;
  std::string folder_;
  std::string_view file_;
  std::shared_ptr<const void> owner_;
  const TorchLimits& limits_;
  uint64_t copied_bytes_ = 0;
};

Result<TorchTensor> TensorReader::read(std::string name, const PickleMachine& machine, const PickleValue& tensor) {
  const PickleValue& storage = machine.at(tensor.storage);
  const auto type = storage_type(storage.global);
  if (!type) return corrupt("{}: '{}' lies in a {}, which is no storage", file_, printable(name), printable(storage.global));
  const auto width = static_cast<uint64_t>(facts(*type).block_bytes);
  const auto* bytes = zip_.find(folder_ + "data/" + std::string(storage.text.substr(0, limits_.zip.max_name_bytes)));
  if (bytes == nullptr)
    return corrupt("{}: '{}': storage '{}' is not in the archive", file_, printable(name), printable(storage.text));
  const auto count = static_cast<uint64_t>(storage.number);
  const auto wanted = checked_mul(count, width);
  if (!wanted || bytes->size() != *wanted) {
    return corrupt("{}: '{}': storage '{}' has {} bytes, not {} elements of {}", file_, printable(name), printable(storage.text),
                   bytes->size(), count, dtype_name(*type));
  }

  if (tensor.sizes.size() > Shape::kMaxRank) {
    return unsupported("{}: '{}' has {} dimensions; four are supported", file_, printable(name), tensor.sizes.size());
  }
  // The element furthest from the storage's start, and whether elements follow each other.
  std::optional<uint64_t> last = static_cast<uint64_t>(tensor.number);
  bool in_a_row = true;
  std::optional<uint64_t> elements = 1;
  for (size_t i = tensor.sizes.size(); i-- > 0;) {
    const auto size = static_cast<uint64_t>(tensor.sizes[i]), stride = static_cast<uint64_t>(tensor.strides[i]);
    if (size == 0) return unsupported("{}: '{}' is empty", file_, printable(name));
    if (size > 1 && stride != *elements) in_a_row = false;
    const auto reach = checked_mul(size - 1, stride);
    last = last && reach ? checked_add(*last, *reach) : std::nullopt;
    elements = checked_mul(*elements, size);
    if (!elements || *elements > (uint64_t{1} << 48)) return too_large("{}: '{}' is too large", file_, printable(name));
  }
  if (!last || *last >= count) {
    return corrupt("{}: '{}' reaches beyond its storage of {} elements", file_, printable(name), count);
  }

  TorchTensor out;
  out.name = std::move(name);
  const std::byte* first = bytes->data() + static_cast<uint64_t>(tensor.number) * width;
  out.view = {first, *type, Shape(std::span<const int64_t>(tensor.sizes)), kCpuDevice};
  out.owner = owner_;
  if (in_a_row) return out;
  return copy(std::move(out), first, tensor);
}

Result<TorchTensor> TensorReader::copy(TorchTensor out, const std::byte* first, const PickleValue& tensor) {
  // A stride of 0 makes a few bytes any number of elements, hence the limit over all tensors.
  copied_bytes_ += static_cast<uint64_t>(out.view.size_bytes());
  if (copied_bytes_ > limits_.max_copied_bytes) {
    return too_large("{}: '{}' and the strided tensors before it take more than {} bytes", file_, printable(out.name),
                     limits_.max_copied_bytes);
  }
  if (limits_.shapes_only) return out;
  CHORAL_TRY(Tensor memory, Tensor::allocate(out.view.dtype, out.view.shape));
  const int64_t width = facts(out.view.dtype).block_bytes;
  const int64_t elements = out.view.shape.elements();
  std::array<int64_t, Shape::kMaxRank> index{};
  const int rank = out.view.shape.rank();
  std::byte* to = memory.data();
  for (int64_t i = 0; i < elements; ++i, to += width) {
    int64_t at = 0;
    for (int d = 0; d < rank; ++d) at += index[d] * tensor.strides[d];
    std::memcpy(to, first + at * width, width);
    for (int d = rank - 1; d >= 0 && ++index[d] == out.view.shape[d]; --d) index[d] = 0;
  }
  auto kept = std::make_shared<Tensor>(std::move(memory));
  out.view = kept->view();
  out.owner = std::move(kept);
  return out;
}

}  // namespace

Result<std::vector<TorchTensor>> parse_torch_tensors(std::span<const std::byte> file, std::string_view file_name,
                                                     std::shared_ptr<const void> owner, const TorchLimits& limits) {
  if (file.size() >= 2 && file[0] == std::byte{0x80} && file[1] <= std::byte{5}) {
    return unsupported("{} is in the format of torch before 1.6; load it with torch and save it as safetensors", file_name);
  }
  CHORAL_TRY(const ZipDirectory zip, ZipDirectory::parse(file, file_name, limits.zip));
  CHORAL_TRY(const std::string folder, folder_of(zip, file_name));
  if (const auto* order = zip.find(folder + "byteorder")) {
    const std::string_view text(reinterpret_cast<const char*>(order->data()), order->size());
    if (text != "little") return unsupported("{}: its byte order is '{}'; little is supported", file_name, printable(text));
  }
  const auto pickle = *zip.find(folder + "data.pkl");
  if (pickle.size() > limits.max_pickle_bytes) {
    return too_large("{}: its pickle has {} bytes; {} are allowed", file_name, pickle.size(), limits.max_pickle_bytes);
  }
  PickleMachine machine(pickle, file_name, limits);
  CHORAL_TRY(const PickleRef top, machine.run());
  const PickleValue& dictionary = machine.at(top);
  if (dictionary.kind != Kind::kDict) return unsupported("{} holds something else than a dictionary of tensors", file_name);

  TensorReader reader(zip, folder, file_name, std::move(owner), limits);
  std::vector<TorchTensor> out;
  for (size_t i = 0; i + 1 < dictionary.items.size(); i += 2) {
    const PickleValue& key = machine.at(dictionary.items[i]);
    const PickleValue& value = machine.at(dictionary.items[i + 1]);
    if (key.kind != Kind::kText) return unsupported("{}: a key of its dictionary is no text", file_name);
    if (key.text.size() > limits.max_name_bytes) return too_large("{}: a name has {} bytes", file_name, key.text.size());
    if (value.kind != Kind::kTensor) return unsupported("{}: '{}' is no tensor", file_name, printable(key.text));
    if (out.size() >= limits.max_tensors) return too_large("{} has more than {} tensors", file_name, limits.max_tensors);
    CHORAL_TRY(auto tensor, reader.read(std::string(key.text), machine, value));
    out.push_back(std::move(tensor));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < out.size(); ++i) {
    if (out[i].name == out[i - 1].name) return corrupt("{}: '{}' stands in it twice", file_name, printable(out[i].name));
  }
  return out;
}

}  // namespace choral::io
