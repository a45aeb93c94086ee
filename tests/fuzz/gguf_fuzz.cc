// Any bytes as a GGUF model: header, checkpoint with its name mapping and row orders, both configurations. Every view that is
// handed out is read to its last byte, every row order must be a permutation.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "io/checkpoint.h"
#include "io/model_config.h"
#include "tensor/view.h"

namespace {

void read_all(const choral::io::Checkpoint& checkpoint) {
  uint64_t total = 0;
  for (const auto& name : checkpoint.names()) {
    const auto tensor = checkpoint.find(name);
    if (!tensor.ok()) continue;
    std::vector<choral::TensorView> views{tensor->view};
    if (!tensor->parts.empty()) {
      views.clear();
      for (const auto& part : tensor->parts) views.push_back(part.view);
      int64_t elements = 0;
      for (const auto& view : views) elements += view.shape.elements();
      CHORAL_CHECK(elements == tensor->view.shape.elements(), "parts that are not the whole");
    }
    std::byte sum{};
    for (const auto& view : views) {
      total += static_cast<uint64_t>(view.size_bytes());
      for (int64_t i = 0; i < view.size_bytes(); ++i) sum ^= view.data[i];
    }
    __asm__ volatile("" : : "r"(static_cast<int>(sum)));  // the sum counts as used, so the reads stay
    std::vector<int32_t> order = tensor->row_order;
    if (order.empty()) continue;
    CHORAL_CHECK(std::ssize(order) == tensor->view.shape[0], "an order of the wrong length");
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < order.size(); ++i)
      CHORAL_CHECK(order[i] == static_cast<int32_t>(i), "an order that is no permutation");
    checkpoint.release(name);
  }
  CHORAL_CHECK(total <= checkpoint.total_bytes(), "tensors larger than their sum");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int descriptor = memfd_create("fuzzed", MFD_CLOEXEC);
  CHORAL_CHECK(descriptor >= 0 && write(descriptor, data, size) == static_cast<ssize_t>(size), "no memory file");
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (const auto checkpoint = choral::io::Checkpoint::open(path); checkpoint.ok()) read_all(**checkpoint);
  if (const auto config = choral::io::load_model_config(path); config.ok()) {
    CHORAL_CHECK(config->get_int("hidden_size").ok(), "a configuration without its sizes");
  }
  static_cast<void>(choral::io::load_generation_config(path).ok());
  close(descriptor);
  return 0;
}
