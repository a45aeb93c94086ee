#include "kernels/gemm/int8/int8_panels.h"

#include <cstring>

#include "base/check.h"

namespace choral::kernels {
namespace {

template <class T>
T of_group(std::span<const T> values, int64_t g) {
  return values[values.size() == 1 ? 0 : static_cast<size_t>(g)];
}

template <class T>
void store(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof value);
}

}  // namespace

void pack_int8_panel(const Int8Form& form, std::span<const Int8Channel> channels, std::byte* panel) {
  CHORAL_CHECK(static_cast<int64_t>(channels.size()) <= kInt8Lanes, "a panel has 16 lanes");
  for (int64_t g = 0; g < form.groups(); ++g) {
    std::byte* header = panel + g * form.group_bytes();
    std::byte* weights = header + form.header_bytes();
    const int64_t count = form.group_k(g);
    std::memset(header, 0, static_cast<size_t>(form.header_bytes()));
    std::memset(weights, kInt8Zero, static_cast<size_t>(ceil_div(count, kInt8Step) * kInt8StepBytes));
    for (size_t lane = 0; lane < channels.size(); ++lane) {
      const Int8Channel& channel = channels[lane];
      store(header + 4 * lane, of_group(channel.scales, g));
      if (form.corrected) store(header + 64 + 4 * lane, of_group(channel.corrections, g));
      const auto* from = reinterpret_cast<const std::byte*>(channel.w + g * form.group);
      std::byte* to = weights + 4 * lane;
      for (int64_t i = 0; i < count; i += kInt8Step, to += kInt8StepBytes) {
        uint32_t step = 0;  // zeros after the last k
        std::memcpy(&step, from + i, static_cast<size_t>(std::min(kInt8Step, count - i)));
        store(to, step ^ 0x80808080u);
      }
    }
  }
}

void read_int8_row(const Int8Panels& panels, int64_t row, float divisor, std::span<float> out) {
  const Int8Form& form = panels.form;
  CHORAL_CHECK(row >= 0 && row < panels.n && static_cast<int64_t>(out.size()) == form.k, "a row of W has k elements");
  const int64_t lane = row % kInt8Lanes;
  for (int64_t g = 0; g < form.groups(); ++g) {
    const std::byte* header = panels.panel(row / kInt8Lanes) + g * form.group_bytes();
    const std::byte* weights = header + form.header_bytes() + 4 * lane;
    float scale;
    std::memcpy(&scale, header + 4 * lane, sizeof scale);
    scale /= divisor;
    for (int64_t i = 0; i < form.group_k(g); ++i) {
      const int stored = std::to_integer<int>(weights[i / kInt8Step * kInt8StepBytes + i % kInt8Step]);
      out[static_cast<size_t>(g * form.group + i)] = static_cast<float>(stored - kInt8Zero) * scale;
    }
  }
}

}  // namespace choral::kernels
