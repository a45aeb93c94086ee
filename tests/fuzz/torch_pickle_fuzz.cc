// Any bytes as a file of torch.save. An odd first byte makes the rest the pickle of an archive that is right otherwise, with the
// storages '0' and '1'. Every tensor that is accepted is read to its last byte.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "io/torch_pickle.h"

namespace {

template <class T>
void put(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void add_entry(std::string& file, std::string& directory, const std::string& name, const std::string& data) {
  const auto size = static_cast<uint32_t>(data.size()), offset = static_cast<uint32_t>(file.size());
  const auto name_size = static_cast<uint16_t>(name.size());
  for (std::string* out : {&file, &directory}) {
    const bool central = out == &directory;
    put<uint32_t>(*out, central ? 0x02014b50 : 0x04034b50);
    out->append(central ? 4 : 2, '\0');  // versions
    out->append(12, '\0');               // flags, method, time, CRC
    put(*out, size);
    put(*out, size);
    put(*out, name_size);
    out->append(central ? 12 : 2, '\0');
    if (central) {
      put(*out, offset);
    }
    *out += name;
    if (!central) *out += data;
  }
}

std::string archive(const std::string& pickle) {
  std::string file, directory;
  add_entry(file, directory, "m/data.pkl", pickle);
  add_entry(file, directory, "m/data/0", std::string(64, '\1'));
  add_entry(file, directory, "m/data/1", std::string(24, '\2'));
  const auto offset = static_cast<uint32_t>(file.size());
  file += directory;
  put<uint32_t>(file, 0x06054b50);
  file.append(4, '\0');
  put<uint16_t>(file, 3);
  put<uint16_t>(file, 3);
  put<uint32_t>(file, static_cast<uint32_t>(directory.size()));
  put<uint32_t>(file, offset);
  put<uint16_t>(file, 0);
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string text = data[0] % 2 == 1 ? archive(rest) : rest;
  // Of exactly this size on the heap, so that a sanitizer sees every read past the end.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(text.data()),
                                    reinterpret_cast<const std::byte*>(text.data()) + text.size());
  choral::io::TorchLimits limits;
  limits.max_values = 100'000;
  limits.max_copied_bytes = 1 << 20;
  const auto tensors = choral::io::parse_torch_tensors(file, "fuzzed", nullptr, limits);
  if (!tensors.ok()) return 0;
  uint64_t sum = 0, copied = 0, all_bytes = 0;
  for (const auto& tensor : *tensors) {
    const auto bytes = static_cast<uint64_t>(tensor.view.size_bytes());
    all_bytes += bytes;
    if (tensor.owner) copied += bytes;
    CHORAL_CHECK(tensor.owner || (tensor.view.data >= file.data() && tensor.view.data + bytes <= file.data() + file.size()),
                 "a tensor outside the file");
    for (uint64_t i = 0; i < bytes; ++i) sum += std::to_integer<uint8_t>(tensor.view.data[i]);
  }
  CHORAL_CHECK(copied <= limits.max_copied_bytes, "more was copied than is allowed");
  CHORAL_CHECK(sum <= 255 * all_bytes, "bytes of more than 255");
  return 0;
}
